package jinja

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filters are those that chat templates use. init fills them, because map refers to them.
var filters map[string]*routine

// refusedFilters are Jinja's others. Parse refuses a template with one.
var refusedFilters = words("abs attr batch center e escape filesizeformat forceescape groupby pprint random round slice striptags " +
	"urlencode urlize wordcount wordwrap xmlattr")

func words(names string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

// onMarkup are the filters that accept text that went through safe.
var onMarkup = words("string default d safe tojson length count replace join list first last int float")

func (r *run) filter(name string, f *routine, in any, a args) any {
	if _, ok := in.(markup); ok && !onMarkup[name] {
		r.fail("the filter '%s' is not supported for text that went through safe", name)
	}
	return f.invoke(r, name, in, a)
}

// onText returns a routine of a text: a filter, which takes any value, or a method.
func onText(f func(r *run, s string, a []any) any, params ...any) *routine {
	return define(func(r *run, in any, a []any) any { return f(r, r.str(in), a) }, params...)
}

var (
	upper      = onText(func(r *run, s string, _ []any) any { return r.upper(s) })
	lower      = onText(func(r *run, s string, _ []any) any { return r.lower(s) })
	capitalize = onText(func(r *run, s string, _ []any) any { return r.capitalize(s) })
	strip      = stripper(true, true)
)

func stripper(left, right bool) *routine {
	return onText(func(r *run, s string, a []any) any { return r.strip(s, a[0], left, right) }, "chars", nil)
}

func init() {
	size := define(lengthFilter)
	otherwise := define(func(_ *run, in any, a []any) any {
		if _, ok := in.(*undefined); ok || truth(a[1]) && !truth(in) {
			return a[0]
		}
		return in
	}, "default_value", "", "boolean", false)
	filters = map[string]*routine{
		"upper": upper, "lower": lower, "capitalize": capitalize, "trim": strip, "length": size, "count": size, "default": otherwise, "d": otherwise,
		"title": onText(func(r *run, s string, _ []any) any { return r.titleWords(s) }),
		"string": define(func(r *run, in any, _ []any) any {
			if _, ok := in.(markup); ok {
				return in
			}
			return r.str(in)
		}),
		"safe": onText(func(_ *run, s string, _ []any) any { return markup(s) }),
		"replace": onText(func(r *run, s string, a []any) any {
			if a[2] == nil {
				a[2] = int64(-1)
			}
			return r.replace(s, r.str(a[0]), r.str(a[1]), r.number("replace", a[2]))
		}, "old", required{}, "new", required{}, "count", nil),
		"format":   {raw: formatFilter},
		"int":      define(intFilter, "default", int64(0)),
		"float":    define(floatFilter, "default", 0.0),
		"indent":   define(indent, "width", int64(4), "first", false, "blank", false),
		"truncate": define(truncateText, "length", int64(255), "killwords", false, "end", "...", "leeway", nil),
		"tojson":   define(toJSON, "ensure_ascii", false, "indent", nil, "separators", nil, "sort_keys", false),
		"items":    define(items),
		"first":    define(first),
		"last":     define(last),
		"list":     define(func(r *run, in any, _ []any) any { return &List{r.list(in)} }),
		"reverse":  define(reverse),
		"join":     define(join, "d", "", "attribute", nil),
		"map":      {raw: mapFilter},
		"select":   {raw: selector(true, false)}, "selectattr": {raw: selector(true, true)},
		"reject": {raw: selector(false, false)}, "rejectattr": {raw: selector(false, true)},
		"min":      define(extreme("<"), "case_sensitive", false, "attribute", nil),
		"max":      define(extreme(">"), "case_sensitive", false, "attribute", nil),
		"sort":     define(sortFilter, "reverse", false, "case_sensitive", false, "attribute", nil),
		"dictsort": define(dictSort, "case_sensitive", false, "by", "key", "reverse", false),
		"unique":   define(unique, "case_sensitive", false, "attribute", nil),
		"sum":      define(sum, "attribute", nil, "start", int64(0)),
	}
}

func lengthFilter(r *run, in any, _ []any) any {
	if s, ok := plain(in).(string); ok {
		r.step(len(s) >> 6)
	}
	n, ok := length(in)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(in))
	}
	return int64(n)
}

func formatFilter(r *run, in any, a args) any {
	if len(a.names) > 0 {
		r.fail("format with keyword arguments is not supported")
	}
	return percent(&r.meter, r.str(in), &tuple{a.pos})
}

// readNumber parses a text as Python's int does, or else float.
func (m *meter) readNumber(s string) (v any, ok bool) {
	s = strings.TrimFunc(s, isSpace)
	plain := strings.Map(func(c rune) rune {
		switch {
		case c == '_':
			return -1
		case unicode.Is(unicode.Nd, c) && c >= utf8.RuneSelf:
			return '0'
		}
		return c
	}, s)
	n, err := strconv.ParseInt(plain, 10, 64)
	v = n
	if errors.Is(err, strconv.ErrRange) {
		m.fail("a text as a number beyond 64 bits is not supported")
	} else if err != nil {
		f, err := strconv.ParseFloat(plain, 64)
		if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(plain, "xX") {
			return nil, false
		}
		v = f
	}
	if plain != s {
		m.fail("a number with underscores or digits of other scripts is not supported")
	}
	return v, true
}

func intFilter(r *run, in any, a []any) any {
	v, ok := r.toNumber(in)
	f, isFloat := v.(float64)
	switch {
	case !ok || isFloat && math.IsNaN(f):
		return a[0]
	case isFloat:
		return r.whole(f)
	}
	return v
}

func floatFilter(r *run, in any, a []any) any {
	if v, ok := r.toNumber(in); ok {
		return r.float(v)
	}
	return a[0]
}

func (r *run) toNumber(v any) (any, bool) {
	r.check(v)
	if s, ok := plain(v).(string); ok {
		return r.readNumber(s)
	}
	if b, ok := v.(bool); ok {
		v, _ = small(b)
	}
	return v, isNumber(v)
}

func indent(r *run, in any, a []any) any {
	s := r.text("indent", in)
	by, ok := a[0].(string)
	if !ok {
		n := max(r.number("indent", a[0]), 0)
		r.grow(n)
		by = strings.Repeat(" ", n)
	}
	lines := r.splitLines(s + "\n")
	r.grow(len(s) + times(len(lines), len(by)))
	for i := range lines {
		if i > 0 && (truth(a[2]) || lines[i] != "") {
			lines[i] = by + lines[i]
		}
	}
	text := strings.Join(lines, "\n")
	if truth(a[1]) {
		text = by + text
	}
	return text
}

func truncateText(r *run, in any, a []any) any {
	limit, end := r.number("truncate", a[0]), r.text("truncate", a[2])
	leeway := 5
	if a[3] != nil {
		leeway = r.number("truncate", a[3])
	}
	cut := limit - utf8.RuneCountInString(end)
	if cut < 0 || leeway < 0 {
		r.fail("truncate: the length must be at least that of the end, and leeway at least 0")
	}
	if n, _ := small(lengthFilter(r, in, nil)); int(n) <= limit+leeway {
		return in
	}
	s := r.text("truncate", in)
	r.grow(len(s) >> 2)
	s = r.cut(s, cut)
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !truth(a[1]) {
		s = s[:i]
	}
	return s + end
}

// getter returns a function that reads a path such as "a.b.0" from a value.
func (r *run) getter(attribute, otherwise any) func(any) any {
	var path []any
	switch a := attribute.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(a, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && decimal(part[0]) {
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

func (r *run) keyOf(attribute, sensitive any) func(any) any {
	get := r.getter(attribute, nil)
	return func(v any) any {
		v = get(v)
		if s, ok := plain(v).(string); ok && !truth(sensitive) {
			return r.lower(s)
		}
		return v
	}
}

func sorted[T any](r *run, elements []T, key func(T) any, reverse any) []T {
	r.growList(4 * len(elements))
	out := slices.Clone(elements)
	slices.SortStableFunc(out, func(a, b T) int {
		r.step(2)
		order, ok := r.order("<", key(a), key(b))
		if !ok {
			r.fail("sorting NaN is not supported")
		}
		if truth(reverse) {
			return -order
		}
		return order
	})
	return out
}

func sortFilter(r *run, in any, a []any) any {
	if s, ok := a[2].(string); ok && strings.Contains(s, ",") {
		r.fail("sort by many attributes is not supported")
	}
	key := r.keyOf(a[2], a[1])
	return &List{sorted(r, r.list(in), func(v any) any { return &List{[]any{key(v)}} }, a[0])} // in a list, equal keys need no order
}

func dictSort(r *run, in any, a []any) any {
	at := slices.Index([]any{"key", "value"}, a[1])
	if at < 0 {
		r.fail(`dictsort sorts by "key" or "value"`)
	}
	r.check(in)
	d, ok := in.(*Dict)
	if !ok {
		r.fail("'%s' object has no attribute 'items'", typeName(in))
	}
	return &List{sorted(r, r.list(&view{d, "dict_items"}), r.keyOf(int64(at), a[0]), a[2])}
}

func extreme(op string) func(r *run, in any, a []any) any {
	return func(r *run, in any, a []any) any {
		key := r.keyOf(a[1], a[0])
		var best any = &undefined{"no aggregated item, sequence was empty"}
		for i, v := range r.list(in) {
			if i == 0 || r.holds(op, key(v), key(best)) {
				best = v
			}
		}
		return best
	}
}

func sum(r *run, in any, a []any) any {
	get, total := r.getter(a[0], nil), a[1]
	if _, ok := plain(total).(string); ok {
		r.fail("sum() can't sum strings")
	}
	for _, v := range r.list(in) {
		total = r.binary("+", total, get(v))
	}
	return total
}

func first(r *run, in any, _ []any) any {
	if v, ok := r.iterate(in)(); ok {
		return v
	}
	return &undefined{"no first item, sequence was empty"}
}

func (r *run) reversed(v any) (iterFunc, bool) {
	switch s := plain(v).(type) {
	case string:
		v = &List{r.list(s)}
	case *undefined:
		return iterator(v)
	}
	n, at, ok := elements(v)
	return func() (any, bool) {
		if n == 0 {
			return nil, false
		}
		n--
		return at(n), true
	}, ok
}

func last(r *run, in any, _ []any) any {
	next, ok := r.reversed(in)
	if !ok {
		r.fail("'%s' object is not reversible", typeName(in))
	}
	if v, ok := next(); ok {
		return v
	}
	return &undefined{"no last item, sequence was empty"}
}

func reverse(r *run, in any, _ []any) any {
	if s, ok := in.(string); ok {
		return r.slice(s, nil, nil, int64(-1))
	}
	if next, ok := r.reversed(in); ok {
		return &generator{next, "reversed"}
	}
	l := r.list(in)
	slices.Reverse(l)
	return &List{l}
}

func join(r *run, in any, a []any) any {
	get, values := r.getter(a[1], nil), r.list(in)
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = r.str(get(v))
	}
	return r.joinTexts(parts, r.str(a[0]))
}

// lazily returns a generator of the elements of in that f keeps and changes. f is called before the first element.
func (r *run) lazily(in any, f func() func(any) (any, bool)) any {
	var next iterFunc
	var each func(any) (any, bool)
	return &generator{kind: "generator", next: func() (any, bool) {
		if next == nil {
			each = f()
			next = r.iterate(in)
		}
		for {
			v, ok := next()
			if !ok {
				return nil, false
			}
			r.step(1)
			if v, ok = each(v); ok {
				return v, true
			}
		}
	}}
}

func items(r *run, in any, _ []any) any {
	of := in
	if d, ok := in.(*Dict); ok {
		of = &view{d, "dict_items"}
	}
	return r.lazily(of, func() func(any) (any, bool) {
		if _, ok := in.(*undefined); !ok && of == in {
			r.fail("items wants a mapping, not '%s'", typeName(in))
		}
		return func(v any) (any, bool) { return v, true }
	})
}

func unique(r *run, in any, a []any) any {
	return r.lazily(in, func() func(any) (any, bool) {
		key, seen := r.keyOf(a[1], a[0]), &Dict{}
		return func(v any) (any, bool) {
			n := seen.Len()
			r.setItem(seen, key(v), nil)
			return v, seen.Len() > n
		}
	})
}

func unlessEmpty(in any) any {
	if !truth(in) {
		return &List{}
	}
	return in
}

// mapAttribute has the parameters of map if it reads an attribute.
var mapAttribute = define(nil, "attribute", required{}, "default", nil)

func mapFilter(r *run, in any, a args) any {
	return r.lazily(unlessEmpty(in), func() func(any) (any, bool) {
		if len(a.pos) == 0 {
			p := mapAttribute.bind(r, "map", a)
			get := r.getter(p[0], p[1])
			return func(v any) (any, bool) { return get(v), true }
		}
		name := r.text("map", a.pos[0])
		f := filters[name]
		if f == nil {
			r.fail("the filter '%s' is not supported", name)
		}
		rest := args{a.pos[1:], a.names, a.values}
		return func(v any) (any, bool) { return r.filter(name, f, v, rest), true }
	})
}

// selector implements select, reject, selectattr and rejectattr.
func selector(keep, attribute bool) func(r *run, in any, a args) any {
	return func(r *run, in any, a args) any {
		return r.lazily(unlessEmpty(in), func() func(any) (any, bool) {
			get, pos := func(v any) any { return v }, a.pos
			if attribute {
				if len(pos) == 0 {
					r.fail("missing parameter for attribute name")
				}
				get, pos = r.getter(pos[0], nil), pos[1:]
			}
			if len(pos) == 0 {
				return func(v any) (any, bool) { return v, truth(get(v)) == keep }
			}
			name := r.text("select", pos[0])
			is := tests[name]
			if is == nil {
				r.fail("the test '%s' is not supported", name)
			}
			rest := args{pos[1:], a.names, a.values}
			return func(v any) (any, bool) { return v, is.invoke(r, name, get(v), rest) == keep }
		})
	}
}
