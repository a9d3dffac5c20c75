package jinja

import (
	"slices"
	"strings"
)

// markup is text that is safe in HTML: what the filters safe and escape make. It is a string whose + escapes the other
// side, which real templates meet. Where the meaning depends on the version of Python's MarkupSafe, it is refused.
type markup string

// unmark is v, as a plain string where it is markup.
func unmark(v any) any {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

// escaped is v as markup.
func (r *run) escaped(v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	s := r.str(v)
	r.grow(5 * len(s))
	return markup(htmlEscapes.Replace(s))
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func escape(r *run, in any, a args) any {
	r.bind("escape", a, 0)
	return r.escaped(in)
}

func forceEscape(r *run, in any, a args) any {
	r.bind("forceescape", a, 0)
	return r.escaped(r.str(in))
}

func markSafe(r *run, in any, a args) any {
	r.bind("safe", a, 0)
	return markup(r.str(in))
}

// markupBinary is a op b where one of them is markup; false where it is as for strings.
func (r *run) markupBinary(op string, a, b any) (any, bool) {
	left, isLeft := a.(markup)
	right, isRight := b.(markup)
	if !isLeft && !isRight {
		return nil, false
	}
	switch op {
	case "+":
		_, isText := unmark(a).(string)
		_, isText2 := unmark(b).(string)
		if isText && isText2 {
			x, y := r.escaped(a), r.escaped(b)
			r.grow(len(x) + len(y))
			return x + y, true
		}
	case "*":
		if !isLeft {
			left = right
			a, b = b, a
		}
		if n, ok := r.count(b); ok {
			r.grow(times(len(left), n))
			return markup(strings.Repeat(string(left), n)), true
		}
	case "%":
		if isLeft {
			r.fail("formatting with text that went through safe or escape is not supported")
		}
		return nil, false
	}
	r.fail("unsupported operand types for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil, false
}

// keepMarkup are the filters that return markup for markup; takeMarkup those that make something else of it. Others are
// refused.
var (
	keepMarkup = set("upper", "lower", "capitalize", "trim", "center", "string", "indent")
	takeMarkup = set("default", "d", "e", "escape", "forceescape", "safe", "tojson", "length", "count", "replace", "join", "list",
		"first", "last", "int", "float", "wordcount", "title")
)

// filter runs a filter.
func (r *run) filter(name string, f filter, in any, a args) any {
	r.reads(in, a)
	m, isMarkup := in.(markup)
	with := func(v any) bool { _, ok := v.(markup); return ok }
	if name != "default" && name != "d" && name != "join" && (slices.ContainsFunc(a.pos, with) || slices.ContainsFunc(a.values, with)) {
		a.pos, a.values = unmarkAll(a.pos), unmarkAll(a.values)
		if isMarkup {
			r.fail("the filter '%s' is not supported for text that went through safe or escape", name)
		}
	}
	switch {
	case !isMarkup || takeMarkup[name]:
		return f(r, in, a)
	case keepMarkup[name] && (name != "trim" || len(a.pos)+len(a.names) == 0):
		return markup(r.str(f(r, string(m), a)))
	}
	r.fail("the filter '%s' is not supported for text that went through safe or escape", name)
	return nil
}

func unmarkAll(vs []any) []any {
	out := make([]any, len(vs))
	for i, v := range vs {
		out[i] = unmark(v)
	}
	return out
}

// markupMethod is a method of markup: those that Python overrides give markup, and are supported without arguments.
func markupMethod(name string, m method) method {
	return func(r *run, self any, a args) any {
		s := string(self.(markup))
		switch name {
		case "capitalize", "title", "lower", "upper", "lstrip", "rstrip", "strip", "swapcase":
			if len(a.pos)+len(a.names) == 0 {
				return markup(r.str(m(r, s, a)))
			}
		case "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
			"isnumeric", "isprintable", "isspace", "istitle", "isupper", "rfind", "rindex", "startswith":
			return m(r, s, a)
		}
		r.fail("the method '%s' is not supported for text that went through safe or escape", name)
		return nil
	}
}
