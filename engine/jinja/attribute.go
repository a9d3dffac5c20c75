package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// attributes are the methods that chat templates use, by Python's name of the type.
var attributes = map[string]map[string]*routine{
	"str": {
		"upper": upper, "lower": lower, "capitalize": capitalize, "strip": strip, "lstrip": stripper(true, false), "rstrip": stripper(false, true),
		"title": onText(func(r *run, s string, _ []any) any { return r.title(s) }),
		"split": onText(split(false), "sep", nil, "maxsplit", int64(-1)), "rsplit": onText(split(true), "sep", nil, "maxsplit", int64(-1)),
		"splitlines": onText(func(r *run, s string, _ []any) any { return r.texts(r.splitLines(s)) }),
		"replace": onText(func(r *run, s string, a []any) any {
			return r.replace(s, r.text("replace", a[0]), r.text("replace", a[1]), r.number("replace", a[2]))
		}, "old", required{}, "new", required{}, "count", int64(-1)),
		"join":       onText(joinMethod, "iterable", required{}),
		"startswith": onText(affix(strings.HasPrefix), "prefix", required{}), "endswith": onText(affix(strings.HasSuffix), "suffix", required{}),
		"removeprefix": onText(func(r *run, s string, a []any) any { return strings.TrimPrefix(s, r.text("removeprefix", a[0])) }, "prefix", required{}),
		"removesuffix": onText(func(r *run, s string, a []any) any { return strings.TrimSuffix(s, r.text("removesuffix", a[0])) }, "suffix", required{}),
		"find":         onText(find(strings.Index), "sub", required{}), "rfind": onText(find(strings.LastIndex), "sub", required{}),
		"count":   onText(func(r *run, s string, a []any) any { return int64(strings.Count(s, r.text("count", a[0]))) }, "sub", required{}),
		"isdigit": onText(isDigit),
	},
	"dict": {
		"keys": viewMethod("dict_keys"), "values": viewMethod("dict_values"), "items": viewMethod("dict_items"),
		"get": define(func(r *run, in any, a []any) any {
			if v, ok := in.(*Dict).find(r.hashKey(a[0])); ok {
				return v
			}
			return a[1]
		}, "key", required{}, "default", nil),
	},
}

// mutating methods are undefined in the sandbox.
var mutating = map[string]map[string]bool{
	"list": words("append clear pop reverse insert sort extend remove"), "dict": words("clear pop popitem setdefault update"),
}

const (
	ofFloat = " as_integer_ratio conjugate fromhex hex imag is_integer real "
	ofInt   = ofFloat + " bit_count bit_length denominator from_bytes numerator to_bytes "
)

// refused are the other attributes of Python's types.
var refused = map[string]map[string]bool{
	"str": words("casefold center encode expandtabs format format_map index isalnum isalpha isascii isdecimal isidentifier islower isnumeric isprintable " +
		"isspace istitle isupper ljust maketrans partition rindex rjust rpartition swapcase translate zfill"),
	"dict": words("copy fromkeys"), "list": words("copy count index"), "tuple": words("count index"), "range": words("count index start step stop"),
	"int": words(ofInt), "bool": words(ofInt), "float": words(ofFloat),
	"dict_keys": words("isdisjoint mapping"), "dict_items": words("isdisjoint mapping"), "dict_values": words("mapping"),
	"generator":   words("close gi_code gi_frame gi_running gi_suspended gi_yieldfrom send throw"),
	"Macro":       words("arguments caller catch_kwargs catch_varargs explicit_caller name"),
	"LoopContext": words("changed cycle depth depth0"),
}

// refusedMethods are methods that no type supports here. Parse refuses a template that calls one.
var refusedMethods = map[string]bool{}

func init() {
	for t := range refused {
		for name := range refused[t] {
			refusedMethods[name] = t != "Macro" || refusedMethods[name]
		}
	}
	for t := range attributes {
		for name := range attributes[t] {
			delete(refusedMethods, name)
		}
	}
	for t := range mutating {
		for name := range mutating[t] {
			delete(refusedMethods, name)
		}
	}
}

// attribute returns v.name: an attribute of the object, else its element of that name.
func (r *run) attribute(v any, name string) any {
	r.check(v)
	if a, ok := r.own(v, name); ok {
		return a
	}
	if d, ok := v.(*Dict); ok {
		if e, ok := d.find(name); ok {
			return e
		}
	}
	return noAttribute(v, name)
}

func (r *run) own(v any, name string) (any, bool) {
	ns, isNamespace := v.(*namespace)
	if strings.HasPrefix(name, "__") || isNamespace && strings.HasPrefix(name, "_") {
		r.fail("the attribute '%s' is unsafe and not supported", name)
	}
	switch v := v.(type) {
	case *namespace:
		return ns.fields.find(name)
	case *loop:
		if a, ok := v.attribute(name); ok {
			return a, true
		}
	}
	t := typeName(v)
	f := attributes[t][name]
	switch {
	case f != nil:
	case mutating[t][name]:
		return &undefined{"access to attribute '" + name + "' of '" + t + "' object is unsafe and not supported"}, true
	case refused[t][name] || t == "Markup" && (attributes["str"][name] != nil || refused["str"][name]):
		r.fail("the attribute '%s' of '%s' objects is not supported", name, t)
	default:
		return nil, false
	}
	r.grow(4 * valueSize)
	return &function{name, v, f}, true
}

// getItem returns v[index], else the attribute of that name.
func (r *run) getItem(v, index any) any {
	r.check(v)
	index = plain(index)
	if _, ok := v.(markup); ok {
		r.fail("elements of text that went through safe are not supported")
	}
	if e, ok := r.element(v, index); ok {
		return e
	}
	if name, ok := index.(string); ok {
		if a, ok := r.own(v, name); ok {
			return a
		}
	}
	return noAttribute(v, index)
}

func (r *run) element(v, index any) (any, bool) {
	switch v := v.(type) {
	case *Dict:
		switch index.(type) {
		case *List, *Dict, *tuple, *view: // no dict has such keys
			return nil, false
		}
		return v.find(r.hashKey(index))
	case *view:
		return nil, false
	}
	i, isIndex := small(index)
	n, at, ok := elements(v)
	if s, isText := v.(string); isText && isIndex {
		r.step(len(s) >> 8)
		n, at, ok = len(s), func(i int) any { return s[i : i+1] }, true
		if !isASCII(s) {
			r.grow(4 * len(s))
			runes := []rune(s)
			n, at = len(runes), func(i int) any { return string(runes[i]) }
		}
	}
	if i < 0 {
		i += int64(n)
	}
	if !ok || !isIndex || i < 0 || i >= int64(n) {
		return nil, false
	}
	return at(int(i)), true
}

// slice returns v[from:to:by]. Unlike an index, it fails if Python has none.
func (r *run) slice(v, from, to, by any) any {
	r.check(v)
	if s, ok := v.(string); ok {
		if isASCII(s) {
			if first, count, step := r.bounds(len(s), from, to, by); step == 1 {
				return s[first : first+count]
			}
		}
		r.grow(4 * len(s))
		runes := []rune(s)
		first, count, step := r.bounds(len(runes), from, to, by)
		r.grow(4 * count)
		out := make([]rune, count)
		for i := range out {
			out[i] = runes[first+i*step]
		}
		return string(out)
	}
	items, of := sequence(v)
	if of == nil {
		r.fail("a slice of a '%s' object is not supported", typeName(v))
	}
	first, count, step := r.bounds(len(items), from, to, by)
	r.growList(count)
	out := make([]any, count)
	for i := range out {
		out[i] = items[first+i*step]
	}
	return of(out)
}

func (r *run) bounds(n int, from, to, by any) (first, count, step int) {
	number := func(v any, none int) int {
		if v == nil {
			return none
		}
		return r.number("a slice", v)
	}
	if step = number(by, 1); step == 0 {
		r.fail("slice step cannot be zero")
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(v any, none int) int {
		i := number(v, none)
		if v != nil && i < 0 {
			i += n
		}
		return max(min(i, high), low)
	}
	if step > 0 {
		first = clamp(from, low)
		return first, max((clamp(to, high)-first+step-1)/step, 0), step
	}
	first = clamp(from, high)
	return first, max((first-clamp(to, low)-step-1)/-step, 0), step
}

func viewMethod(kind string) *routine {
	return define(func(_ *run, in any, _ []any) any { return &view{in.(*Dict), kind} })
}

func split(last bool) func(r *run, s string, a []any) any {
	return func(r *run, s string, a []any) any {
		most := r.number("split", a[1])
		r.grow(len(s))
		if a[0] == nil {
			return r.texts(splitSpace(s, most, last))
		}
		sep := r.text("split", a[0])
		if sep == "" {
			r.fail("split: empty separator")
		}
		r.growList(strings.Count(s, sep))
		return r.texts(splitAt(s, sep, most, last))
	}
}

func joinMethod(r *run, sep string, a []any) any {
	items := r.list(a[0])
	parts := make([]string, len(items))
	for i, e := range items {
		parts[i] = r.text("join", e)
	}
	return r.joinTexts(parts, sep)
}

// affix implements startswith and endswith, for one text or a tuple of them.
func affix(has func(s, affix string) bool) func(r *run, s string, a []any) any {
	return func(r *run, s string, a []any) any {
		if t, ok := a[0].(*tuple); ok {
			a = t.items
		}
		for _, e := range a {
			if r.step(1); has(s, r.text("startswith", e)) {
				return true
			}
		}
		return false
	}
}

func find(search func(s, sub string) int) func(r *run, s string, a []any) any {
	return func(r *run, s string, a []any) any {
		i := search(s, r.text("find", a[0]))
		return int64(utf8.RuneCountInString(s[:max(i, 0)]) + min(i, 0))
	}
}

func isDigit(r *run, s string, _ []any) any {
	for _, c := range s {
		switch {
		case unicode.Is(unicode.Nd, c):
		case unicode.Is(unicode.No, c):
			r.fail("isdigit of '%c' is not supported", c)
		default:
			return false
		}
	}
	return s != ""
}
