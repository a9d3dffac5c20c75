package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// attribute is v.name: an attribute of the object, else its element of that name.
func (r *run) attribute(v any, name string) any {
	if u, ok := v.(*undefined); ok && !privateAttribute(name) {
		r.fail("%s", u.message)
	}
	if a, ok := r.own(v, name); ok {
		return a
	}
	if d, ok := v.(*Dict); ok {
		if e, ok := d.find(name); ok {
			return e
		}
	}
	return r.noAttribute(v, name)
}

// mutating are the methods that change their object, which the sandbox keeps back.
var mutating = map[string]map[string]bool{
	"list": {"append": true, "clear": true, "pop": true, "reverse": true, "insert": true, "sort": true, "extend": true, "remove": true},
	"dict": {"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true},
}

// own is an attribute that v has by its type.
func (r *run) own(v any, name string) (any, bool) {
	switch v := v.(type) {
	case *namespace:
		if e, ok := v.fields.find(name); ok && !strings.HasPrefix(name, "_") {
			return e, true
		}
		return nil, false
	case *loop:
		return v.attribute(r, name)
	case *cycler:
		return v.attribute(name)
	case *macro:
		return v.attribute(name)
	case *tuple:
		for i, f := range v.fields {
			if f == name {
				return v.items[i], true
			}
		}
	case *rangeValue:
		switch name {
		case "start":
			return v.from, true
		case "stop":
			return v.to, true
		case "step":
			return v.step, true
		}
	}
	t := typeName(v)
	if mutating[t][name] || privateAttribute(name) {
		return &undefined{message: "access to attribute '" + name + "' of '" + t + "' object is unsafe and not supported"}, true
	}
	m := methods[t][name]
	if t == "Markup" && methods["str"][name] != nil {
		m = markupMethod(name, methods["str"][name])
	}
	if m != nil {
		r.grow(4 * valueSize)
		return &function{name: name, self: v, call: func(r *run, a args) any {
			r.reads(v, a)
			return m(r, v, a)
		}}, true
	}
	if unsupportedAttributes[t][name] {
		r.fail("the attribute '%s' of '%s' objects is not supported", name, t)
	}
	return nil, false
}

// privateAttribute says whether every object of Python has an attribute of this name.
func privateAttribute(name string) bool {
	switch name {
	case "__class__", "__dir__", "__doc__", "__eq__", "__format__", "__ge__", "__getattribute__", "__gt__", "__hash__", "__init__",
		"__init_subclass__", "__le__", "__lt__", "__ne__", "__new__", "__reduce__", "__reduce_ex__", "__repr__", "__setattr__",
		"__sizeof__", "__str__", "__subclasshook__", "__delattr__", "__getstate__":
		return true
	}
	return false
}

// item is e.of[e.index].
func (r *run) item(e *itemExpr, s *scope) any {
	v := r.eval(e.of, s)
	if sl, ok := e.index.(*sliceExpr); ok {
		var from, to, step any
		if sl.from != nil {
			from = r.eval(sl.from, s)
		}
		if sl.to != nil {
			to = r.eval(sl.to, s)
		}
		if sl.step != nil {
			step = r.eval(sl.step, s)
		}
		r.line = e.line
		return r.slice(v, from, to, step)
	}
	index := r.eval(e.index, s)
	r.line = e.line
	return r.getItem(v, index)
}

// getItem is v[index], else the attribute of that name.
func (r *run) getItem(v, index any) any {
	r.check(v)
	if e, ok := r.element(v, index); ok {
		return e
	}
	if name, ok := unmark(index).(string); ok {
		if a, ok := r.own(v, name); ok {
			return a
		}
	}
	return r.noAttribute(v, index)
}

// element is v[index], false where Python has none.
func (r *run) element(v, index any) (any, bool) {
	if m, ok := v.(markup); ok {
		c, ok := r.element(string(m), index)
		if s, isText := c.(string); isText {
			return markup(s), ok
		}
		return nil, false
	}
	index = unmark(index)
	if d, ok := v.(*Dict); ok {
		if !hashable(index) {
			return nil, false
		}
		return d.find(r.hashKey(index))
	}
	i, isSmall := small(index)
	if !isSmall {
		return nil, false
	}
	if s, ok := v.(string); ok {
		return r.character(s, i)
	}
	switch v.(type) {
	case *List, *tuple, *rangeValue:
	default:
		return nil, false
	}
	n, at, _ := elements(v)
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return nil, false
	}
	return at(int(i)), true
}

// hashable says whether v can be a key.
func hashable(v any) bool {
	switch v := v.(type) {
	case *List, *Dict, *view:
		return false
	case *tuple:
		for _, e := range v.items {
			if !hashable(e) {
				return false
			}
		}
	}
	return true
}

// character is s[i].
func (r *run) character(s string, i int64) (any, bool) {
	if isASCII(s) {
		r.step(len(s) >> 8)
		if i < 0 {
			i += int64(len(s))
		}
		if i < 0 || i >= int64(len(s)) {
			return nil, false
		}
		return s[i : i+1], true
	}
	r.step(len(s) >> 6)
	if i < 0 {
		i += int64(utf8.RuneCountInString(s))
	}
	for at := range s {
		if i == 0 {
			_, n := utf8.DecodeRuneInString(s[at:])
			return s[at : at+n], true
		}
		i--
	}
	return nil, false
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// slice is v[from:to:step]. Other than an index, it fails where Python has none.
func (r *run) slice(v, from, to, step any) any {
	r.check(v)
	if m, ok := v.(markup); ok {
		s, _ := r.slice(string(m), from, to, step).(string) // a string's slice is one
		return markup(s)
	}
	n, at, ok := elements(v)
	s, isString := v.(string)
	switch v.(type) {
	case *Dict, *view:
		ok = false
	}
	if !ok && !isString {
		r.fail("'%s' object can't be sliced", typeName(v))
	}
	var runes []rune
	if isString {
		if n = len(s); !isASCII(s) {
			r.grow(4 * len(s))
			runes = []rune(s)
			n = len(runes)
		}
	}
	a, b, by, ok := r.bounds(n, from, to, step)
	if !ok {
		r.fail("slice indices must be integers or None")
	}
	if rv, ok := v.(*rangeValue); ok {
		return &rangeValue{rv.from + int64(a)*rv.step, rv.from + int64(b)*rv.step, rv.step * int64(by)}
	}
	if isString && runes == nil && by == 1 {
		r.step(1)
		return s[a:max(a, b)]
	}
	count := (&rangeValue{int64(a), int64(b), int64(by)}).len()
	if isString {
		r.grow(4 * count)
		var out strings.Builder
		for i := range count {
			if runes != nil {
				out.WriteRune(runes[a+i*by])
			} else {
				out.WriteByte(s[a+i*by])
			}
		}
		return out.String()
	}
	r.growList(count)
	items := make([]any, count)
	for i := range items {
		items[i] = at(a + i*by)
	}
	if _, ok := v.(*tuple); ok {
		return &tuple{items: items}
	}
	return &List{items}
}

// bounds makes the bounds of a slice of n elements such that no index is out of them; false where they are no numbers.
func (r *run) bounds(n int, from, to, step any) (a, b, by int, ok bool) {
	num := func(v any, none int) (int, bool) {
		if v == nil {
			return none, true
		}
		i, ok := small(v)
		if b, isBig := v.(*big.Int); isBig {
			i, ok = int64(b.Sign())<<40, true
		}
		return int(max(min(i, 1<<40), -1<<40)), ok
	}
	if by, ok = num(step, 1); !ok {
		return 0, 0, 0, false
	}
	if by == 0 {
		r.fail("slice step cannot be zero")
	}
	low, high := 0, n
	if by < 0 {
		low, high = -1, n-1
	}
	clamp := func(v any, none int) (int, bool) {
		if v == nil {
			return none, true
		}
		i, ok := num(v, 0)
		if i < 0 {
			i += n
		}
		return max(min(i, high), low), ok
	}
	first, last := low, high
	if by < 0 {
		first, last = high, low
	}
	if a, ok = clamp(from, first); !ok {
		return 0, 0, 0, false
	}
	b, ok = clamp(to, last)
	return a, b, by, ok
}
