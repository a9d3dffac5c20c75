package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// guardMark is a noncharacter of Unicode, which exchanged text has not.
const guardMark = "\uFDD0"

// Guard returns text whose control tokens Encode with parseSpecial takes for plain text: templates need that for users'
// texts. Only the same Tokenizer understands it. Words that meet the surrounding text may differ. U+FDD0 in text is
// lost.
func (t *Tokenizer) Guard(text string) string {
	text = unguard(text)
	at, n, _ := t.control.find(text)
	if n == 0 {
		return text
	}
	var b strings.Builder
	for n > 0 {
		// a mark breaks every control token that begins here
		_, k := utf8.DecodeRuneInString(text[at:])
		b.WriteString(text[:at+k])
		b.WriteString(guardMark)
		text = text[at+k:]
		at, n, _ = t.control.find(text)
	}
	b.WriteString(text)
	return b.String()
}

func unguard(text string) string {
	return strings.ReplaceAll(text, guardMark, "")
}
