// Package field reads and edits the top-level fields of a JSON object without
// decoding it: what an edit does not name keeps its bytes, white space and order
// included.
//
// How one call goes:
//
//  1. The whole body is checked against the syntax (RFC 8259), as encoding/json
//     does. One that is not exactly one JSON object (an array, a form, broken JSON,
//     a second value behind it) is returned as it came: it is the model server's
//     to refuse. Who removes a field to protect a server must ask [Check] first:
//     servers differ in what broken JSON they still read.
//  2. The fields with the name are found, however their names are written:
//     "\u006dodel" is model. A name may occur several times.
//  3. If nothing is to be changed, the body itself is returned, and nothing was
//     allocated. Else the result is a new slice.
//
// The functions with Fold in their name ignore case as encoding/json does for the
// fields of a struct: a server written in Go takes "Model", "MODEL" and even
// "ſtream" (with a long s) for what they resemble.
//
// It refuses to look below the top level. All functions are pure and safe for
// many goroutines.
package field

import "bytes"

// Find returns the value of the field as it is encoded, without white space
// around it. Of a repeated field it is the last one, which counts for
// encoding/json and most others. The value is a part of body, not a copy.
func Find(body []byte, name string) (value []byte, found bool) { return find(body, name, false) }

// FindFold is [Find] without regard to case.
func FindFold(body []byte, name string) (value []byte, found bool) { return find(body, name, true) }

// Set gives every field with the name the value, or adds the field at the end.
// value is encoded JSON; that it is valid is the caller's promise.
func Set(body []byte, name string, value []byte) []byte { return set(body, name, value, false) }

// SetFold is [Set] without regard to case; names are left as they are spelt.
func SetFold(body []byte, name string, value []byte) []byte { return set(body, name, value, true) }

// Rename gives every field named from the name to. Where there is one, fields
// that were named to before are removed: the renamed one counts.
func Rename(body []byte, from, to string) []byte { return rename(body, from, to, false) }

// RenameFold is [Rename] without regard to case.
func RenameFold(body []byte, from, to string) []byte { return rename(body, from, to, true) }

// Delete removes every field with the name.
func Delete(body []byte, name string) []byte { return remove(body, name, false) }

// DeleteFold is [Delete] without regard to case.
func DeleteFold(body []byte, name string) []byte { return remove(body, name, true) }

// Each calls yield with every field of the object, in order, until it returns
// false: its name as it is written, quotes included, and its value. Arrays and
// objects may be nested at most depth deep, the object itself included; 0: as deep
// as for encoding/json. It returns what [Check] does; on an error some fields may
// have been seen.
func Each(body []byte, depth int, yield func(name, value []byte) bool) error {
	s := scanner{data: body, depth: depth}
	for s.next() {
		if !yield(body[s.field.name:s.field.nameEnd], body[s.field.value:s.field.valueEnd]) {
			return nil
		}
	}
	return s.error()
}

// Check returns nil if body is exactly one JSON object, and else what is wrong
// with it and at which byte.
func Check(body []byte) error {
	s := scanner{data: body}
	for s.next() {
	}
	return s.error()
}

func find(body []byte, name string, fold bool) (value []byte, found bool) {
	s := scanner{data: body}
	for s.next() {
		if s.is(name, fold) {
			value, found = body[s.field.value:s.field.valueEnd], true
		}
	}
	if s.failed() {
		return nil, false
	}
	return value, found
}

func set(body []byte, name string, value []byte, fold bool) []byte {
	s := scanner{data: body}
	present, change := false, false
	for s.next() {
		if s.is(name, fold) {
			present = true
			change = change || !bytes.Equal(body[s.field.value:s.field.valueEnd], value)
		}
	}
	switch {
	case s.failed() || (present && !change):
		return body
	case !present:
		return add(body, s.field, name, value)
	}
	return edit(body, len(value), func(s *scanner, out []byte) []byte {
		if !s.is(name, fold) {
			return append(out, s.segment()...)
		}
		out = append(out, body[s.field.begin:s.field.value]...)
		out = append(out, value...)
		return append(out, body[s.field.valueEnd:s.field.end]...)
	})
}

// add puts a field behind last, the object's last field or its opening brace.
func add(body []byte, last place, name string, value []byte) []byte {
	out := make([]byte, 0, len(body)+len(name)+len(value)+4)
	out = append(out, body[:last.valueEnd]...)
	if last.name > 0 {
		out = append(out, ',')
	}
	out = appendName(out, name)
	out = append(out, ':')
	out = append(out, value...)
	return append(out, body[last.valueEnd:]...)
}

func rename(body []byte, from, to string, fold bool) []byte {
	if !has(body, from, fold) || from == to {
		return body
	}
	return edit(body, len(to), func(s *scanner, out []byte) []byte {
		switch {
		case s.is(from, fold):
			out = append(out, body[s.field.begin:s.field.name]...)
			out = appendName(out, to)
			return append(out, body[s.field.nameEnd:s.field.end]...)
		case s.is(to, fold):
			return nil
		}
		return append(out, s.segment()...)
	})
}

func remove(body []byte, name string, fold bool) []byte {
	if !has(body, name, fold) {
		return body
	}
	return edit(body, 0, func(s *scanner, out []byte) []byte {
		if s.is(name, fold) {
			return nil
		}
		return append(out, s.segment()...)
	})
}

func has(body []byte, name string, fold bool) bool {
	_, found := find(body, name, fold)
	return found
}

// edit writes body anew, which is an object. each appends what becomes of one
// field, white space around it included, or returns nil to leave it out. more is
// a guess of how much longer the result is.
func edit(body []byte, more int, each func(s *scanner, out []byte) []byte) []byte {
	out := make([]byte, 0, len(body)+more+8)
	s := scanner{data: body}
	any := false
	for s.next() {
		if !any {
			out = append(out, body[:s.opened]...)
		}
		length := len(out)
		if any && length > s.opened {
			out = append(out, ',')
		}
		any = true
		if longer := each(&s, out); longer != nil {
			out = longer
		} else {
			out = out[:length]
		}
	}
	return append(out, body[s.closed:]...)
}
