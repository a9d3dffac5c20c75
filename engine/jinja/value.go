package jinja

import (
	"math/big"
	"unicode/utf8"
)

// Values are nil (None), bool, int64, *big.Int (beyond int64), float64, string, *List, *tuple, *Dict, and the types below.
// A nil *undefined never occurs.

// List is Python's list.
type List struct{ items []any }

// NewList makes a list of values; it keeps the slice.
func NewList(items ...any) *List { return &List{items} }

// Len is the number of elements.
func (l *List) Len() int { return len(l.items) }

// tuple is Python's tuple; fields are the names of a named one.
type tuple struct {
	items  []any
	fields []string
}

// undefined is what a name without a value stands for. Most uses of it fail.
type undefined struct{ message string }

// rangeValue is Python's range.
type rangeValue struct{ from, to, step int64 }

func (v *rangeValue) len() int {
	switch {
	case v.step > 0 && v.from < v.to:
		return int((v.to-v.from-1)/v.step + 1)
	case v.step < 0 && v.from > v.to:
		return int((v.from-v.to-1)/-v.step + 1)
	}
	return 0
}

func (v *rangeValue) at(i int) any { return v.from + int64(i)*v.step }

// iterFunc returns the next element, or false at the end.
type iterFunc func() (any, bool)

// generator is an iterator that can be read once, as most filters of lists make one.
type generator struct {
	next iterFunc
	kind string // Python's name of it
}

// view is dict.keys(), .values() or .items().
type view struct {
	of   *Dict
	kind string
}

func (v *view) at(i int) any {
	e := &v.of.entries[i]
	switch v.kind {
	case "dict_keys":
		return e.key
	case "dict_values":
		return e.value
	}
	return &tuple{items: []any{e.key, e.value}}
}

// function is what a template can call: a global, or a method bound to its object.
type function struct {
	name string
	self any // of a method
	call func(r *run, a args) any
}

type macro struct {
	def   *macroDef
	scope *scope
}

// namespace holds fields that can be set from inner scopes.
type namespace struct{ fields *Dict }

// typeName is the name of v's type in Python.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *rangeValue:
		return "range"
	case *generator:
		return v.kind
	case *view:
		return v.kind
	case *function:
		return "function"
	case *macro:
		return "Macro"
	case *namespace:
		return "Namespace"
	case *loop:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	}
	return "object"
}

// truth is bool(v).
func (r *run) truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *loop:
		return v.length(r) > 0
	}
	n, ok := length(v)
	return !ok || n > 0
}

// length is len(v), false where v has none.
func length(v any) (int, bool) {
	switch v := unmark(v).(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case *List:
		return len(v.items), true
	case *tuple:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *view:
		return v.of.Len(), true
	case *rangeValue:
		return v.len(), true
	case *undefined:
		return 0, true
	}
	return 0, false
}

// iterate is iter(v).
func (r *run) iterate(v any) iterFunc {
	next, ok := r.iterator(v)
	if !ok {
		r.fail("'%s' object is not iterable", typeName(v))
	}
	return next
}

func (r *run) iterator(v any) (iterFunc, bool) {
	switch v := unmark(v).(type) {
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
	case *loop:
		return func() (any, bool) {
			item, ok := v.advance()
			if !ok {
				return nil, false
			}
			return &tuple{items: []any{item, v}}, true
		}, true
	case *undefined:
		return func() (any, bool) { return nil, false }, true
	}
	n, at, ok := elements(v)
	if !ok {
		return nil, false
	}
	i := 0
	return func() (any, bool) {
		if i >= n {
			return nil, false
		}
		i++
		return at(i - 1), true
	}, true
}

// elements are those of a value that can be walked over many times, but for strings.
func elements(v any) (n int, at func(int) any, ok bool) {
	switch v := v.(type) {
	case *List:
		return len(v.items), func(i int) any { return v.items[i] }, true
	case *tuple:
		return len(v.items), func(i int) any { return v.items[i] }, true
	case *Dict:
		return v.Len(), func(i int) any { return v.entries[i].key }, true
	case *view:
		return v.of.Len(), v.at, true
	case *rangeValue:
		return v.len(), v.at, true
	}
	return 0, nil, false
}

// list is list(v), as a slice of its own.
func (r *run) list(v any) []any {
	var out []any
	if n, ok := length(v); ok {
		r.growList(n)
		out = make([]any, 0, n)
	}
	next := r.iterate(v)
	for {
		e, ok := next()
		if !ok {
			return out
		}
		if len(out) == cap(out) {
			r.growList(len(out))
		}
		r.step(1)
		out = append(out, e)
	}
}

// undefinedf makes an undefined value; the message is that of the failure when it is used.
func (r *run) undefinedf(message string) *undefined { return &undefined{message: message} }

// noAttribute is what a missing attribute or element stands for.
func (r *run) noAttribute(v any, name any) *undefined {
	if name, ok := name.(string); ok {
		return &undefined{message: "'" + describe(v) + "' has no attribute '" + shorten(name) + "'"}
	}
	return &undefined{message: describe(v) + " has no such element"}
}

func describe(v any) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// check fails where v is undefined.
func (r *run) check(vs ...any) {
	for _, v := range vs {
		if u, ok := v.(*undefined); ok {
			r.fail("%s", u.message)
		}
	}
}
