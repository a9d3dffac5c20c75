package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// StreamDecoder turns ids into text as they come. Its output is always whole characters: bytes that may be the
// beginning of a character are held back until the rest comes; bytes that cannot be part of one become U+FFFD. It
// belongs to one goroutine.
type StreamDecoder struct {
	t    *Tokenizer
	held []byte // the beginning of a character, at most 3 bytes between calls
}

// Stream returns a decoder for the continuation of a text: a space that begins the first id's piece is kept.
func (t *Tokenizer) Stream() *StreamDecoder { return &StreamDecoder{t: t} }

// Write takes the next id and returns the text that is now certain, which is often empty for control tokens and for
// parts of a character.
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

// Flush returns U+FFFD if the text ended within a character. It resets the decoder.
func (d *StreamDecoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return string(replacement)
}
