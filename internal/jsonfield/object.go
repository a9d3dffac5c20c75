package jsonfield

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Object is a JSON object with the edits made so far. The zero value is an empty body.
type Object struct {
	// Fold compares names as encoding/json does: it accepts "Model", "MODEL" and even "ſtream" (with a long s).
	Fold bool

	body   []byte
	braces braces
	fields []field
	err    error
	edited []byte // the body with the edits; nil: outdated, or no edits
	dirty  bool
	few    [12]field // most bodies have fewer fields
}

type field struct {
	place
	name, value []byte // encoded; nil: unchanged
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

// Err returns nil if the body is exactly one JSON object.
func (o *Object) Err() error { return o.err }

// Changed reports whether an edit was made.
func (o *Object) Changed() bool { return o.dirty }

// Bytes returns the body itself if it was not edited.
func (o *Object) Bytes() []byte {
	if !o.dirty {
		return o.body
	}
	if o.edited == nil {
		o.edited = o.render()
	}
	return o.edited
}

// Fields yields each raw name, including quotes, and value.
func (o *Object) Fields(yield func(name, value []byte) bool) {
	for i := range o.fields {
		if f := &o.fields[i]; !f.gone && !yield(o.name(f), o.value(f)) {
			return
		}
	}
}

// Find returns the encoded value of the field, a part of the body; if it is repeated, the last one, as most parsers do.
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
		if !first {
			if !f.added {
				out = append(out, tail...)
			}
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
	q, _ := json.Marshal(name)
	return q
}

// Watch detects fields that two parsers may read differently: repeated ones, and names in another case. It belongs to one
// body.
type Watch struct {
	// Names are in lower case, at most 64.
	Names []string
	seen  uint64
}

// See checks the raw name of a field, as yielded by [Each].
func (w *Watch) See(name []byte) error {
	key := name[1 : len(name)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		var plain string
		if json.Unmarshal(name, &plain) != nil {
			return nil
		}
		key = []byte(plain)
	}
	if len(key) == 0 {
		return nil
	}
	for i, n := range w.Names {
		switch {
		case key[0]|0x20 != n[0] && key[0] < utf8.RuneSelf:
		case string(key) == n && w.seen&(1<<i) != 0:
			return fmt.Errorf("the field %s occurs twice: send it once", n)
		case string(key) == n:
			w.seen |= 1 << i
			return nil
		case bytes.EqualFold(key, []byte(n)):
			return fmt.Errorf("the field %q is not %s: write it so, or leave it out", key, n)
		}
	}
	return nil
}

// Saw reports whether a field with that name, one of Names, was seen.
func (w *Watch) Saw(name string) bool {
	i := slices.Index(w.Names, name)
	return i >= 0 && w.seen&(1<<i) != 0
}

// Read lists the fields that proxies in front of a model server read too.
var Read = []string{"model", "stream", "priority", "service_tier", "max_tokens", "max_completion_tokens", "cache_salt"}
