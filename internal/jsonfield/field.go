// Package jsonfield reads and edits the top-level fields of a JSON object without decoding it: an edit keeps all
// other bytes, including white space and order.
//
// A body that is not exactly one JSON object has no fields and is not changed: the model server rejects it. Code that
// removes a field to protect a server must check [Object.Err] first, as servers differ in which broken JSON they accept.
//
// Names are compared after unescaping: "\u006dodel" is model. A name may occur several times.
//
// All functions are pure and safe for concurrent use; an Object belongs to one goroutine.
package jsonfield

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Find returns the value of a field, see [Object.Find].
func Find(body []byte, name string) (value []byte, found bool) {
	_, err := walk(body, func(f place) bool {
		if f.is(body, name, false) {
			value, found = body[f.value:f.valueEnd], true
		}
		return true
	})
	if err != nil {
		return nil, false
	}
	return value, found
}

// Set returns body with the field set, see [Object.Set].
func Set(body []byte, name string, value []byte) []byte {
	o := Open(body)
	o.Set(name, value)
	return o.Bytes()
}

// Delete returns body without the field, see [Object.Delete].
func Delete(body []byte, name string) []byte {
	o := Open(body)
	o.Delete(name)
	return o.Bytes()
}

// Each calls yield with every raw name, including quotes, and value until it returns false. It returns the error of
// [Object.Err], before which some fields may have been yielded.
func Each(body []byte, yield func(name, value []byte) bool) error {
	_, err := walk(body, func(f place) bool { return yield(body[f.name:f.nameEnd], body[f.value:f.valueEnd]) })
	return err
}

// Items calls yield with every item of an array, without white space around it, until it returns false. Before an error,
// some may have been yielded.
func Items(array []byte, yield func(item []byte) bool) error {
	r := open(array)
	defer r.close()
	if err := r.items(yield); err != nil {
		return wrong(array, err)
	}
	return nil
}

// Text returns the text of a valid JSON string with its quotes: a part of the argument if nothing is escaped. Unpaired
// surrogates become U+FFFD; invalid UTF-8 does too if the string has a \u escape.
func Text(quoted []byte) []byte {
	rest := quoted[1 : len(quoted)-1 : len(quoted)-1]
	escape := bytes.IndexByte(rest, '\\')
	if escape < 0 {
		return rest
	}
	text := make([]byte, 0, len(rest))
	for ; escape >= 0; escape = bytes.IndexByte(rest, '\\') {
		c := letters[rest[escape+1]]
		if c == 0 {
			text, _ = jsontext.AppendUnquote(text[:0], quoted) // the error is only about replaced characters
			return text
		}
		text = append(append(text, rest[:escape]...), c)
		rest = rest[escape+2:]
	}
	return append(text, rest...)
}

var letters = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

type place struct {
	begin, end      int // from after the brace or comma before it to the one behind it
	name, nameEnd   int // including the quotes
	value, valueEnd int
}

func (f place) is(body []byte, name string, fold bool) bool {
	written := body[f.name+1 : f.nameEnd-1]
	if bytes.IndexByte(written, '\\') >= 0 || (fold || strings.ContainsRune(name, utf8.RuneError)) && !utf8.Valid(written) {
		written, _ = jsontext.AppendUnquote(nil, body[f.name:f.nameEnd]) // U+FFFD for what is invalid, as in encoding/json
	}
	return string(written) == name || fold && strings.EqualFold(string(written), name)
}

// braces is the offset after an object's opening brace, and of its closing one.
type braces struct{ opened, closed int }

var readers = sync.Pool{New: func() any { return &reader{from: bytes.NewBuffer(nil), json: &jsontext.Decoder{}} }}

type reader struct {
	from *bytes.Buffer
	json *jsontext.Decoder
}

func open(body []byte) *reader {
	r := readers.Get().(*reader)
	*r.from = *bytes.NewBuffer(body)
	r.json.Reset(r.from, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return r
}

func (r *reader) close() {
	*r.from = bytes.Buffer{}
	readers.Put(r)
}

func walk(body []byte, yield func(place) bool) (braces, error) {
	r := open(body)
	defer r.close()
	b, err := r.walk(body, yield)
	if err != nil {
		return b, wrong(body, err)
	}
	return b, nil
}

var (
	errNoObject = errors.New("want a JSON object, beginning with {")
	errNoArray  = errors.New("want a JSON array, beginning with [")
)

func (r *reader) walk(body []byte, yield func(place) bool) (b braces, err error) {
	if at := spaces(body); at < len(body) && body[at] != '{' {
		return b, &jsontext.SyntacticError{ByteOffset: int64(at), Err: errNoObject}
	}
	if _, err := r.json.ReadToken(); err != nil {
		return b, err
	}
	b.opened = int(r.json.InputOffset())
	begin := b.opened
	for r.json.PeekKind() == '"' {
		f := place{begin: begin}
		if f.name, f.nameEnd, err = r.value(); err != nil {
			return b, err
		}
		if f.value, f.valueEnd, err = r.value(); err != nil {
			return b, err
		}
		f.end = f.valueEnd + spaces(body[f.valueEnd:])
		if !yield(f) {
			return b, nil
		}
		begin = f.end + 1
	}
	if _, err := r.json.ReadToken(); err != nil {
		return b, err
	}
	b.closed = int(r.json.InputOffset()) - 1
	if at := b.closed + 1; at+spaces(body[at:]) < len(body) {
		return b, &jsontext.SyntacticError{ByteOffset: int64(at + spaces(body[at:])), Err: errors.New("want nothing after the object")}
	}
	return b, nil
}

func (r *reader) items(yield func(item []byte) bool) error {
	if r.json.PeekKind() != '[' {
		return errNoArray
	}
	if _, err := r.json.ReadToken(); err != nil {
		return err
	}
	for r.json.PeekKind() != ']' {
		item, err := r.json.ReadValue()
		if err != nil {
			return err
		}
		if !yield(item) {
			return nil
		}
	}
	return nil
}

func (r *reader) value() (from, to int, err error) {
	v, err := r.json.ReadValue()
	to = int(r.json.InputOffset())
	return to - len(v), to, err
}

func spaces(b []byte) int { return len(b) - len(bytes.TrimLeft(b, " \t\r\n")) }

func wrong(body []byte, err error) error {
	var syntax *jsontext.SyntacticError
	at := 0
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the body ends too early, after %d bytes: want more of a JSON object (is it cut off?)", len(body))
	case errors.As(err, &syntax):
		at, err = int(syntax.ByteOffset), syntax.Err
	}
	if at >= len(body) {
		return fmt.Errorf("the body is not valid JSON: %w at byte %d", err, at)
	}
	excerpt := strings.ToValidUTF8(string(body[at:min(len(body), at+12)]), "")
	return fmt.Errorf("the body is not valid JSON: %w at byte %d, got %q", err, at, excerpt)
}

// CheckUTF8 returns an error with the offset of the first byte of body that is not UTF-8.
func CheckUTF8(body []byte) error {
	if utf8.Valid(body) {
		return nil
	}
	at := 0
	for r, n := utf8.DecodeRune(body); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(body[at:]) {
		at += n
	}
	return fmt.Errorf("the body is not valid UTF-8 at byte %d: send JSON encoded as UTF-8", at)
}

// Shallow returns an error if body nests arrays and objects more than depth deep.
func Shallow(body []byte, depth int) error {
	if bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) <= depth {
		return nil
	}
	open, text := 0, false
	for at := 0; at < len(body); at++ {
		switch c := body[at]; {
		case text && c == '\\':
			at++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if open++; open > depth {
				return fmt.Errorf("the body nests arrays and objects more than %d deep at byte %d", depth, at)
			}
		case c == '}' || c == ']':
			open--
		}
	}
	return nil
}
