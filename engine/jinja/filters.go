package jinja

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// filter is a function behind |; in is the value in front of it.
type filter func(r *run, in any, a args) any

// filters are Jinja's. Missing are random, urlize, pprint, wordwrap, xmlattr and striptags.
var filters map[string]filter

// refusedFilters are Jinja's filters that are not supported.
var refusedFilters = set("random", "urlize", "pprint", "wordwrap", "xmlattr", "striptags")

func init() {
	filters = map[string]filter{
		"abs": absolute, "attr": attrFilter, "batch": batch, "d": defaultFilter, "default": defaultFilter, "dictsort": dictSort,
		"e": escape, "escape": escape, "forceescape": forceEscape, "safe": markSafe, "first": first, "last": last,
		"groupby": groupBy, "items": items, "join": joinFilter, "length": lengthFilter, "count": lengthFilter, "list": listFilter,
		"map": mapFilter, "max": extreme(">"), "min": extreme("<"), "reverse": reverse, "slice": sliceFilter, "sort": sortFilter,
		"sum": sum, "unique": unique, "tojson": toJSON,
		"select": selector(true, false), "reject": selector(false, false), "selectattr": selector(true, true), "rejectattr": selector(false, true),
	}
	maps.Copy(filters, textFilters())
}

// getter returns a function that reads an attribute's path, as "a.b.0", of a value.
func (r *run) getter(attribute, otherwise any) func(any) any {
	var path []any
	switch a := attribute.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(a, ".") {
			if everyRune(part, isDecimal) {
				n, _ := r.parseInt(part, 10)
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	default:
		path = []any{a}
	}
	return func(v any) any {
		for _, part := range path {
			r.step(1)
			v = r.getItem(v, part)
			if _, ok := v.(*undefined); ok && otherwise != nil {
				v = otherwise
			}
		}
		return v
	}
}

// ignoreCase is a text in lower case, and other values as they are.
func (r *run) ignoreCase(v any, sensitive bool) any {
	if s, ok := unmark(v).(string); ok && !sensitive {
		return r.lower(s)
	}
	return v
}

// sort sorts in place and keeps the order of equal elements.
func (r *run) sort(entries []entry, key func(entry) any, reverse bool) {
	slices.SortStableFunc(entries, func(a, b entry) int {
		x, y := key(a), key(b)
		if reverse {
			x, y = y, x
		}
		r.step(2)
		switch {
		case r.ordered("<", x, y):
			return -1
		case r.ordered("<", y, x):
			return 1
		}
		return 0
	})
}

// sorted sorts values by keys.
func (r *run) sorted(values []any, key func(any) any, reverse bool) []any {
	r.growList(2 * len(values))
	entries := make([]entry, len(values))
	for i, v := range values {
		entries[i] = entry{key: key(v), value: v}
	}
	r.sort(entries, func(e entry) any { return e.key }, reverse)
	out := make([]any, len(values))
	for i := range entries {
		out[i] = entries[i].value
	}
	return out
}

func absolute(r *run, in any, a args) any {
	r.bind("abs", a, 0)
	r.check(in)
	if !isNumber(in) {
		r.fail("bad operand type for abs(): '%s'", typeName(in))
	}
	if f, ok := in.(float64); ok {
		return math.Abs(f)
	}
	if bigOf(in).Sign() < 0 {
		return r.arithmetic("-", int64(0), in)
	}
	return r.arithmetic("+", int64(0), in)
}

func attrFilter(r *run, in any, a args) any {
	name := r.text("attr", r.bind("attr", a, 1, "name")[0])
	r.check(in)
	if v, ok := r.own(in, name); ok {
		return v
	}
	return r.noAttribute(in, name)
}

func defaultFilter(r *run, in any, a args) any {
	p := r.bind("default", a, 0, "default_value", "boolean")
	if _, ok := in.(*undefined); ok || r.truth(or(p[1], false)) && !r.truth(in) {
		return or(p[0], "")
	}
	return in
}

func batch(r *run, in any, a args) any {
	p := r.bind("batch", a, 1, "linecount", "fill_with")
	fill, next, ended := or(p[1], nil), iterFunc(nil), false
	var row []any
	return &generator{kind: "generator", next: func() (any, bool) {
		if next == nil {
			next = r.iterate(in)
		}
		for !ended {
			v, ok := next()
			if !ok {
				ended = true
				break
			}
			r.grow(2 * valueSize)
			if r.equal(int64(len(row)), p[0]) {
				full := row
				row = []any{v}
				return &List{full}, true
			}
			row = append(row, v)
		}
		if len(row) == 0 {
			return nil, false
		}
		rest := row
		row = nil
		if fill != nil && r.ordered("<", int64(len(rest)), p[0]) {
			n := r.number("batch", p[0]) - len(rest)
			r.growList(n)
			for range n {
				rest = append(rest, fill)
			}
		}
		return &List{rest}, true
	}}
}

func sliceFilter(r *run, in any, a args) any {
	p := r.bind("slice", a, 1, "slices", "fill_with")
	fill, i, offset := or(p[1], nil), 0, 0
	var seq []any
	n, started := 0, false
	return &generator{kind: "generator", next: func() (any, bool) {
		if !started {
			started = true
			seq = r.list(in)
			if n = r.number("slice", p[0]); n == 0 {
				r.fail("integer division or modulo by zero")
			}
		}
		if i >= n {
			return nil, false
		}
		per, extra := len(seq)/n, len(seq)%n
		from := offset + i*per
		if i < extra {
			offset++
		}
		part := seq[from : offset+(i+1)*per]
		r.growList(len(part) + 1)
		part = slices.Clone(part)
		if fill != nil && i >= extra {
			part = append(part, fill)
		}
		i++
		return &List{part}, true
	}}
}

func dictSort(r *run, in any, a args) any {
	p := r.bind("dictsort", a, 0, "case_sensitive", "by", "reverse")
	sensitive, by := r.truth(or(p[0], false)), or(p[1], "key")
	if by != "key" && by != "value" {
		r.fail(`dictsort sorts by "key" or "value"`)
	}
	r.check(in)
	d, ok := in.(*Dict)
	if !ok {
		r.fail("'%s' object has no attribute 'items'", typeName(in))
	}
	at := 0
	if by == "value" {
		at = 1
	}
	return &List{r.sorted(r.list(&view{d, "dict_items"}), func(v any) any {
		return r.ignoreCase(v.(*tuple).items[at], sensitive)
	}, r.truth(or(p[2], false)))}
}

func items(r *run, in any, a args) any {
	r.bind("items", a, 0)
	var next iterFunc
	return &generator{kind: "generator", next: func() (any, bool) {
		if next == nil {
			switch v := in.(type) {
			case *undefined:
				next = func() (any, bool) { return nil, false }
			case *Dict:
				next = r.iterate(&view{v, "dict_items"})
			default:
				r.fail("items wants a mapping, not '%s'", typeName(in))
			}
		}
		return next()
	}}
}

func first(r *run, in any, a args) any {
	r.bind("first", a, 0)
	if v, ok := r.iterate(in)(); ok {
		return v
	}
	return r.undefinedf("no first item, sequence was empty")
}

// reversed is reversed(v), false where Python can't.
func (r *run) reversed(v any) (iterFunc, bool) {
	if s, ok := unmark(v).(string); ok {
		l := &List{r.list(s)}
		return r.reversed(l)
	}
	if _, ok := v.(*undefined); ok {
		return r.iterate(v), true
	}
	n, at, ok := elements(v)
	if !ok {
		return nil, false
	}
	return func() (any, bool) {
		if n == 0 {
			return nil, false
		}
		n--
		return at(n), true
	}, true
}

func last(r *run, in any, a args) any {
	r.bind("last", a, 0)
	next, ok := r.reversed(in)
	if !ok {
		r.fail("'%s' object is not reversible", typeName(in))
	}
	if v, ok := next(); ok {
		return v
	}
	return r.undefinedf("no last item, sequence was empty")
}

func reverse(r *run, in any, a args) any {
	r.bind("reverse", a, 0)
	if s, ok := in.(string); ok {
		return r.slice(s, nil, nil, int64(-1))
	}
	if next, ok := r.reversed(in); ok {
		return &generator{next: next, kind: "reversed"}
	}
	l := r.list(in)
	slices.Reverse(l)
	return &List{l}
}

func groupBy(r *run, in any, a args) any {
	p := r.bind("groupby", a, 1, "attribute", "default", "case_sensitive")
	get, sensitive := r.getter(p[0], or(p[1], nil)), r.truth(or(p[2], false))
	key := func(v any) any { return r.ignoreCase(get(v), sensitive) }
	out := &List{}
	var group *List
	var of any
	for i, v := range r.sorted(r.list(in), key, false) {
		k := key(v)
		if i == 0 || !r.equal(k, of) {
			of, group = k, &List{}
			grouper := k
			if !sensitive {
				grouper = get(v)
			}
			r.growList(4)
			out.items = append(out.items, &tuple{items: []any{grouper, group}, fields: []string{"grouper", "list"}})
		}
		group.items = append(group.items, v)
	}
	return out
}

func joinFilter(r *run, in any, a args) any {
	p := r.bind("join", a, 0, "d", "attribute")
	get := r.getter(or(p[1], nil), nil)
	values := r.list(in)
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = r.str(get(v))
	}
	return r.join2(parts, r.str(or(p[0], "")))
}

func lengthFilter(r *run, in any, a args) any {
	r.bind("length", a, 0)
	if l, ok := in.(*loop); ok {
		return l.length(r)
	}
	n, ok := length(in)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(in))
	}
	return int64(n)
}

func listFilter(r *run, in any, a args) any {
	r.bind("list", a, 0)
	return &List{r.list(in)}
}
