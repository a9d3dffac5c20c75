package jsonfield

import (
	"bytes"
	"encoding/json"
)

// Object is a JSON object whose fields were found in one walk, with the edits made since. Its zero value is an empty body.
type Object struct {
	// Fold compares names without regard to case, as encoding/json does for the fields of a struct: a server written
	// in Go takes "Model", "MODEL" and even "ſtream" (with a long s) for what they resemble.
	Fold bool

	body   []byte
	braces braces
	fields []field
	err    error
	edited []byte    // the body with the edits; nil: one was made since, or none at all
	dirty  bool      // an edit was made
	few    [12]field // most bodies have fewer fields
}

// field is one field of an Object, with what became of it.
type field struct {
	place
	name, value []byte // in place of what is written, encoded; nil: as it is written
	added, gone bool   // added: it has no place
}

// Open finds the fields of body, which must not change while the Object is used.
func Open(body []byte) *Object {
	o := &Object{}
	o.open(body)
	return o
}

// Replace puts another body in the place of what o has.
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

// Clone returns a copy that can be edited apart from o.
func (o *Object) Clone() *Object {
	c := *o
	c.fields = append(c.few[:0], o.fields...)
	return &c
}

// Err returns nil if the body is exactly one JSON object, and else what is wrong with it and at which byte.
func (o *Object) Err() error { return o.err }

// Changed reports whether an edit was made.
func (o *Object) Changed() bool { return o.dirty }

// Bytes returns the body itself if nothing was changed, and else a new slice.
func (o *Object) Bytes() []byte {
	if !o.dirty {
		return o.body
	}
	if o.edited == nil {
		o.edited = o.render()
	}
	return o.edited
}

// Fields calls yield with each field until it returns false: its name as it is written, quotes included, and its value.
func (o *Object) Fields(yield func(name, value []byte) bool) {
	for i := range o.fields {
		if f := &o.fields[i]; !f.gone && !yield(o.name(f), o.value(f)) {
			return
		}
	}
}

// Find returns the value of the field as it is encoded, without white space
// around it. Of a repeated field it is the last one, which counts for
// encoding/json and most others. The value is a part of the body, not a copy.
func (o *Object) Find(name string) (value []byte, found bool) {
	for i := range o.fields {
		if f := &o.fields[i]; o.is(f, name) {
			value, found = o.value(f), true
		}
	}
	return value, found
}

// Set gives every field with the name the value, or adds the field at the end.
// value is encoded JSON; that it is valid is the caller's promise.
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

// Rename gives every field named from the name to. Where there is one, fields
// that were named to before are removed: the renamed one counts.
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

// render writes the object anew. White space behind the last field stays behind a field that was added.
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

// quoted is a name with its quotes.
func quoted(name string) []byte {
	q, _ := json.Marshal(name) // strings always marshal
	return q
}
