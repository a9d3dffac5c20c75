package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// guardMark marks special tokens as plain text. It is a noncharacter of Unicode, which exchanged text has not.
const guardMark = "\uFDD0"

// Guard returns text whose control tokens Encode with parseSpecial takes for plain text, as templates need for users'
// texts. The ids are those of Encode without parseSpecial, except where words meet the surrounding text. Only the same
// Tokenizer understands the result. U+FDD0 in text is lost.
func (t *Tokenizer) Guard(text string) string {
	text = strings.ReplaceAll(text, guardMark, "")
	at, n, _ := t.control.find(text)
	if n == 0 {
		return text
	}
	var b strings.Builder
	for n > 0 {
		// a mark after the first character breaks every control token that begins here
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
