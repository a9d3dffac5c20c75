package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// guardMark stands inside the text of a special token that is meant as plain text. It is a noncharacter of Unicode,
// which has no place in exchanged text.
const guardMark = "\uFDD0"

// Guard returns text such that Encode with parseSpecial takes the control tokens in it for plain text: the ids are those
// of Encode without parseSpecial, but for where words meet the text around. It is for what users write, before a
// template puts it between real control tokens. Only Encode of the same Tokenizer understands the result; most
// texts come back as they are. A text that holds U+FDD0 itself loses it.
func (t *Tokenizer) Guard(text string) string {
	text = strings.ReplaceAll(text, guardMark, "")
	at, n, _ := t.control.find(text)
	if n == 0 {
		return text
	}
	var b strings.Builder
	for n > 0 {
		// a mark behind the first character breaks every control token that begins here; what begins later is found
		// in the next round
		_, k := utf8.DecodeRuneInString(text[at:])
		b.WriteString(text[:at+k])
		b.WriteString(guardMark)
		text = text[at+k:]
		at, n, _ = t.control.find(text)
	}
	b.WriteString(text)
	return b.String()
}

// unguard takes the marks off.
func unguard(text string) string {
	return strings.ReplaceAll(text, guardMark, "")
}
