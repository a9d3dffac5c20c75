package jinja

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Values are nil (None), bool, int64, bigInt, float64, string, markup, *List, *tuple, *Dict, and the types below.

// List is Python's list.
type List struct{ items []any }

// NewList makes a list of values; it keeps the slice.
func NewList(items ...any) *List { return &List{items} }

// Len returns the number of elements.
func (l *List) Len() int { return len(l.items) }

type (
	tuple struct{ items []any }

	// An undefined is the value of a name without one. Most uses of it fail with its message.
	undefined struct{ message string }

	rangeValue struct {
		from, step int64
		n          int
	}

	// An iterFunc returns the next element, or false at the end.
	iterFunc func() (any, bool)

	// A generator can be read once; most filters of lists return one.
	generator struct {
		next iterFunc
		kind string // Python's type
	}

	// A view is dict.keys(), .values() or .items().
	view struct {
		of   *Dict
		kind string
	}

	// A function is a global, or a method of its object.
	function struct {
		name string
		self any
		*routine
	}

	// A macro is a macro or the body of a call block, in the scope where it stands.
	macro struct {
		def   *macroDef
		scope *scope
	}

	// A namespace has fields that inner scopes can set.
	namespace struct{ fields *Dict }

	// A markup is text that went through the filter safe. Its + escapes the other operand for HTML.
	markup string

	// A bigInt is a whole number beyond 64 bits, in decimal. It can be printed and compared.
	bigInt string
)

func (v *view) at(i int) any {
	e := &v.of.entries[i]
	switch v.kind {
	case "dict_keys":
		return e.key
	case "dict_values":
		return e.value
	}
	return &tuple{[]any{e.key, e.value}}
}

// sequence returns the elements of a list or tuple, and its constructor; nil for others.
func sequence(v any) ([]any, func([]any) any) {
	switch v := v.(type) {
	case *List:
		return v.items, func(items []any) any { return &List{items} }
	case *tuple:
		return v.items, func(items []any) any { return &tuple{items} }
	}
	return nil, nil
}

func sequences(a, b any) (x, y []any, ok bool) {
	x, of := sequence(a)
	y, of2 := sequence(b)
	return x, y, of != nil && of2 != nil && typeName(a) == typeName(b)
}

func plain(v any) any {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

func typeName(v any) string {
	switch v := v.(type) {
	case *Dict:
		return "dict"
	case string:
		return "str"
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, bigInt:
		return "int"
	case float64:
		return "float"
	case interface{ python() string }:
		return v.python()
	}
	return "object"
}

func (*List) python() string        { return "list" }
func (*tuple) python() string       { return "tuple" }
func (*undefined) python() string   { return "Undefined" }
func (*rangeValue) python() string  { return "range" }
func (v *generator) python() string { return v.kind }
func (v *view) python() string      { return v.kind }
func (*function) python() string    { return "function" }
func (*macro) python() string       { return "Macro" }
func (*namespace) python() string   { return "Namespace" }
func (*loop) python() string        { return "LoopContext" }
func (markup) python() string       { return "Markup" }

func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	}
	n, ok := length(v)
	return !ok || n > 0
}

func length(v any) (int, bool) {
	switch v := plain(v).(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case *undefined:
		return 0, true
	}
	n, _, ok := elements(v)
	return n, ok
}

// elements returns the elements of a value that can be iterated many times, except strings.
func elements(v any) (n int, at func(int) any, ok bool) {
	if items, of := sequence(v); of != nil {
		return len(items), func(i int) any { return items[i] }, true
	}
	switch v := v.(type) {
	case *Dict:
		return v.Len(), func(i int) any { return v.entries[i].key }, true
	case *view:
		return v.of.Len(), v.at, true
	case *rangeValue:
		return v.n, func(i int) any { return v.from + int64(i)*v.step }, true
	}
	return 0, nil, false
}

func iterator(v any) (iterFunc, bool) {
	switch v := plain(v).(type) {
	case string:
		return func() (any, bool) {
			if v == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(v)
			c := v[:n]
			v = v[n:]
			return c, true
		}, true
	case *generator:
		return v.next, true
	case *undefined:
		return func() (any, bool) { return nil, false }, true
	}
	n, at, ok := elements(v)
	i := 0
	return func() (any, bool) {
		if i >= n {
			return nil, false
		}
		i++
		return at(i - 1), true
	}, ok
}

func (m *meter) iterate(v any) iterFunc {
	next, ok := iterator(v)
	if !ok {
		m.fail("'%s' object is not iterable", typeName(v))
	}
	return next
}

// list returns a new slice.
func (m *meter) list(v any) []any {
	n, _ := length(v)
	m.growList(n)
	out := make([]any, 0, n)
	next := m.iterate(v)
	for {
		e, ok := next()
		if !ok {
			return out
		}
		if len(out) == cap(out) {
			m.growList(len(out))
		}
		m.step(1)
		out = append(out, e)
	}
}

func (m *meter) unpack(v any, n int) []any {
	items := m.list(v)
	if len(items) != n {
		m.fail("values to unpack: want %d, have %d", n, len(items))
	}
	return items
}

func noAttribute(v any, name any) *undefined {
	of := "None"
	if v != nil {
		of = typeName(v) + " object"
	}
	if name, ok := name.(string); ok {
		return &undefined{"'" + of + "' has no attribute '" + shorten(name) + "'"}
	}
	return &undefined{of + " has no such element"}
}

// A table keeps its keys in the order of insertion.
type table[K comparable] struct {
	entries []entry[K]
	index   map[K]int // nil for few entries, which are searched one by one
}

type entry[K comparable] struct {
	hash       K
	key, value any
}

const few = 10 // entries that need no index

func (t *table[K]) at(hash K) int {
	if t.index != nil {
		if i, ok := t.index[hash]; ok {
			return i
		}
		return -1
	}
	for i := range t.entries {
		if t.entries[i].hash == hash {
			return i
		}
	}
	return -1
}

func (t *table[K]) find(hash K) (any, bool) {
	if i := t.at(hash); i >= 0 {
		return t.entries[i].value, true
	}
	return nil, false
}

func (t *table[K]) put(hash K, key, value any) {
	if i := t.at(hash); i >= 0 {
		t.entries[i].value = value
		return
	}
	t.entries = append(t.entries, entry[K]{hash, key, value})
	if t.index != nil {
		t.index[hash] = len(t.entries) - 1
	} else if len(t.entries) > few {
		t.index = make(map[K]int, 2*few)
		for i := range t.entries {
			t.index[t.entries[i].hash] = i
		}
	}
}

// Dict is Python's dict. Keys are text, numbers, bools and None; the table holds their hashKey.
type Dict struct{ table[any] }

type undefinedKey struct{}

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Set sets a string key. An existing key keeps its place.
func (d *Dict) Set(key string, value any) { d.put(key, key, value) }

func (m *meter) setItem(d *Dict, key, value any) {
	m.grow(4 * valueSize)
	d.put(m.hashKey(key), key, value)
}

// hashKey returns a Go value that is equal for equal keys of Python.
func (m *meter) hashKey(v any) any {
	switch v := plain(v).(type) {
	case nil, int64, bigInt:
		return v
	case string:
		m.step(len(v) >> 6)
		return v
	case bool:
		n, _ := small(v)
		return n
	case float64:
		switch {
		case math.IsNaN(v): // equal to nothing, itself included
			return new(float64)
		case v != math.Trunc(v) || math.IsInf(v, 0):
			return v
		}
		return truncate(v)
	case *undefined:
		return undefinedKey{}
	case *List, *Dict, *view:
		m.fail("unhashable type: '%s'", typeName(v))
	}
	m.fail("a '%s' object as a key is not supported", typeName(v))
	return nil
}

func truncate(f float64) any {
	if math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return bigInt(strconv.FormatFloat(f, 'f', 0, 64)) // up to its exact precision
}
