package jsonfield

import (
	"bytes"
	"encoding/json"
)

// Object is a JSON object with the edits made so far. The zero value is an empty body.
type Object struct {
	// Fold compares names case-insensitively, as encoding/json does for struct fields: a server written in Go accepts
	// "Model", "MODEL" and even "ſtream" (with a long s).
	Fold bool

	body   []byte
	braces braces
	fields []field
	err    error
	edited []byte    // the body with the edits; nil: outdated, or no edits
	dirty  bool      // an edit was made
	few    [12]field // most bodies have fewer fields
}

type field struct {
	place
	name, value []byte // the encoded replacements; nil: unchanged
	added, gone bool   // added: it has no place in the body
}

// Open parses body, which must not change while the Object is used.
func Open(body []byte) *Object {
	o := &Object{}
	o.open(body)
	return o
}

// Replace replaces the whole body of o.
func (o *Object) Replace(body []byte) {
	o.open(body)
	o.edited, o.dirty = body, true
}

func (o *Object) open(body []byte) {
	o.body, o.fields = body, o.few[:0]
	o.braces, o.err = walk(body, func(f place) bool {
		o.fields = append(o.fields, field{place: f})
		return true
	})
	if o.err != nil {
		o.fields = nil
	}
}

// Clone returns a copy that can be edited independently.
func (o *Object) Clone() *Object {
	c := *o
	c.fields = append(c.few[:0], o.fields...)
	return &c
}

// Err returns nil if the body is exactly one JSON object, and otherwise the error with its byte offset.
func (o *Object) Err() error { return o.err }

// Changed reports whether an edit was made.
func (o *Object) Changed() bool { return o.dirty }

// Bytes returns the body itself if it was not edited, otherwise a new slice.
func (o *Object) Bytes() []byte {
	if !o.dirty {
		return o.body
	}
	if o.edited == nil {
		o.edited = o.render()
	}
	return o.edited
}

// Fields calls yield with each field until it returns false: with the raw name, including quotes, and the value.
func (o *Object) Fields(yield func(name, value []byte) bool) {
	for i := range o.fields {
		if f := &o.fields[i]; !f.gone && !yield(o.name(f), o.value(f)) {
			return
		}
	}
}

// Find returns the encoded value of the field, without white space around it. If the field is repeated, it returns
// the last one, as encoding/json and most other parsers do. The value is a part of the body, not a copy.
func (o *Object) Find(name string) (value []byte, found bool) {
	for i := range o.fields {
		if f := &o.fields[i]; o.is(f, name) {
			value, found = o.value(f), true
		}
	}
	return value, found
}

// Set sets every field with the name to value, or adds the field at the end. value must be valid JSON.
func (o *Object) Set(name string, value []byte) {
	if o.err != nil {
		return
	}
	present := false
	for i := range o.fields {
		if f := &o.fields[i]; o.is(f, name) {
			present = true
			if !bytes.Equal(o.value(f), value) {
				f.value = value
				o.change()
			}
		}
	}
	if !present {
		o.fields = append(o.fields, field{name: quoted(name), value: value, added: true})
		o.change()
	}
}

// Delete removes every field with the name.
func (o *Object) Delete(name string) {
	for i := range o.fields {
		if f := &o.fields[i]; o.is(f, name) {
			f.gone = true
			o.change()
		}
	}
}

// Rename renames every field called from. If there is one, it removes fields already called to.
func (o *Object) Rename(from, to string) {
	if _, found := o.Find(from); !found || from == to {
		return
	}
	for i := range o.fields {
		switch f := &o.fields[i]; {
		case o.is(f, from):
			f.name = quoted(to)
		case o.is(f, to):
			f.gone = true
		}
	}
	o.change()
}

func (o *Object) change() { o.dirty, o.edited = true, nil }

func (o *Object) is(f *field, name string) bool {
	switch {
	case f.gone:
		return false
	case f.name != nil:
		return place{nameEnd: len(f.name)}.is(f.name, name, o.Fold)
	}
	return f.is(o.body, name, o.Fold)
}

func (o *Object) name(f *field) []byte {
	if f.name != nil {
		return f.name
	}
	return o.body[f.place.name:f.nameEnd]
}

func (o *Object) value(f *field) []byte {
	if f.value != nil {
		return f.value
	}
	return o.body[f.place.value:f.valueEnd]
}

// render writes the edited object. White space after the last field stays, after an added field.
func (o *Object) render() []byte {
	more := 0
	for i := range o.fields {
		more += len(o.fields[i].name) + len(o.fields[i].value) + len(",:")
	}
	out := append(make([]byte, 0, len(o.body)+more), o.body[:o.braces.opened]...)
	first, tail := true, []byte(nil)
	if len(o.fields) == 0 || o.fields[0].added {
		tail = o.body[o.braces.opened:o.braces.closed]
	}
	for i := range o.fields {
		f := &o.fields[i]
		if f.gone {
			continue
		}
		if !first && !f.added {
			out = append(append(out, tail...), ',')
		} else if !first {
			out = append(out, ',')
		}
		first = false
		if f.added {
			out = append(append(append(out, f.name...), ':'), f.value...)
			continue
		}
		out = append(append(out, o.body[f.begin:f.place.name]...), o.name(f)...)
		out = append(append(out, o.body[f.nameEnd:f.place.value]...), o.value(f)...)
		tail = o.body[f.valueEnd:f.end]
	}
	return append(append(out, tail...), o.body[o.braces.closed:]...)
}

func quoted(name string) []byte {
	q, _ := json.Marshal(name) // strings always marshal
	return q
}
