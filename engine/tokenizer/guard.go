package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// guardMark is put into the text of a special token that is meant as plain text. It is a noncharacter of Unicode,
// which has no place in exchanged text.
const guardMark = "\uFDD0"

// Guard returns text in which Encode with parseSpecial takes the control tokens for plain text. The ids are those
// of Encode without parseSpecial, except where words meet the surrounding text. Templates use it for users' text
// between real control tokens. Only Encode of the same Tokenizer understands the result; most
// texts are returned unchanged. U+FDD0 in the text itself is lost.
func (t *Tokenizer) Guard(text string) string {
	text = strings.ReplaceAll(text, guardMark, "")
	at, n, _ := t.control.find(text)
	if n == 0 {
		return text
	}
	var b strings.Builder
	for n > 0 {
		// a mark after the first character breaks every control token that begins here; the next round finds the ones
		// that begin later
		_, k := utf8.DecodeRuneInString(text[at:])
		b.WriteString(text[:at+k])
		b.WriteString(guardMark)
		text = text[at+k:]
		at, n, _ = t.control.find(text)
	}
	b.WriteString(text)
	return b.String()
}

// unguard removes the marks.
func unguard(text string) string {
	return strings.ReplaceAll(text, guardMark, "")
}
