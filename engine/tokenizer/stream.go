package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// StreamDecoder turns ids into whole characters, and U+FFFD for bytes that can't be part of one. It belongs to one
// goroutine.
type StreamDecoder struct {
	t    *Tokenizer
	held []byte // at most 3 bytes of a character
}

// Stream returns a decoder that keeps a first space.
func (t *Tokenizer) Stream() *StreamDecoder { return &StreamDecoder{t: t} }

// Write returns what is certain with id.
func (d *StreamDecoder) Write(id int32) string {
	p := d.t.piece(id)
	if len(d.held) == 0 && utf8.ValidString(p) {
		return p
	}
	d.held = append(d.held, p...)
	var out strings.Builder
	rest := d.held
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, n := utf8.DecodeRune(rest)
		out.WriteRune(r)
		rest = rest[n:]
	}
	d.held = append(d.held[:0], rest...)
	return out.String()
}

// Flush returns U+FFFD if the text ended within a character, and resets the decoder.
func (d *StreamDecoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return string(replacement)
}
