package jinja

import (
	"slices"
	"strings"
)

// lazily makes a generator whose elements f chooses and changes; an empty value has none, whatever it is.
func (r *run) lazily(in any, f func() func(any) (any, bool)) any {
	var next iterFunc
	var each func(any) (any, bool)
	return &generator{kind: "generator", next: func() (any, bool) {
		if next == nil {
			next = func() (any, bool) { return nil, false }
			if r.truth(in) {
				each = f()
				next = r.iterate(in)
			}
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

func mapFilter(r *run, in any, a args) any {
	return r.lazily(in, func() func(any) (any, bool) {
		if at := slices.Index(a.names, "attribute"); len(a.pos) == 0 && at >= 0 {
			p := r.bind("map", a, 0, "attribute", "default")
			get := r.getter(p[0], or(p[1], nil))
			return func(v any) (any, bool) { return get(v), true }
		}
		if len(a.pos) == 0 {
			r.fail("map requires a filter argument")
		}
		name, _ := a.pos[0].(string)
		f := filters[name]
		if f == nil {
			r.fail("the filter '%s' is not supported by map", r.str(a.pos[0]))
		}
		rest := args{a.pos[1:], a.names, a.values}
		return func(v any) (any, bool) { return r.filter(name, f, v, rest), true }
	})
}

// selector is select, reject, selectattr and rejectattr.
func selector(keep, attribute bool) filter {
	return func(r *run, in any, a args) any {
		return r.lazily(in, func() func(any) (any, bool) {
			get, pos := func(v any) any { return v }, a.pos
			if attribute {
				if len(pos) == 0 {
					r.fail("missing parameter for attribute name")
				}
				get, pos = r.getter(pos[0], nil), pos[1:]
			}
			if len(pos) == 0 {
				return func(v any) (any, bool) { return v, r.truth(get(v)) == keep }
			}
			name, _ := pos[0].(string)
			is := tests[name]
			if is == nil {
				r.fail("the test '%s' is not supported", r.str(pos[0]))
			}
			rest := args{pos[1:], a.names, a.values}
			return func(v any) (any, bool) {
				of := get(v)
				r.reads(of, rest)
				return v, is(r, of, rest) == keep
			}
		})
	}
}

// extreme is min and max.
func extreme(op string) filter {
	return func(r *run, in any, a args) any {
		p := r.bind("min", a, 0, "case_sensitive", "attribute")
		get, sensitive := r.getter(or(p[1], nil), nil), r.truth(or(p[0], false))
		next := r.iterate(in)
		best, ok := next()
		if !ok {
			return r.undefinedf("no aggregated item, sequence was empty")
		}
		key := r.ignoreCase(get(best), sensitive)
		for {
			v, ok := next()
			if !ok {
				return best
			}
			r.step(1)
			if k := r.ignoreCase(get(v), sensitive); r.ordered(op, k, key) {
				best, key = v, k
			}
		}
	}
}

func sortFilter(r *run, in any, a args) any {
	p := r.bind("sort", a, 0, "reverse", "case_sensitive", "attribute")
	sensitive := r.truth(or(p[1], false))
	paths := []any{or(p[2], nil)}
	if s, ok := paths[0].(string); ok {
		paths = nil
		for part := range strings.SplitSeq(s, ",") {
			paths = append(paths, part)
		}
	}
	getters := make([]func(any) any, len(paths))
	for i, path := range paths {
		getters[i] = r.getter(path, nil)
	}
	return &List{r.sorted(r.list(in), func(v any) any {
		key := &List{make([]any, len(getters))}
		r.growList(len(getters))
		for i, get := range getters {
			key.items[i] = r.ignoreCase(get(v), sensitive)
		}
		return key
	}, r.truth(or(p[0], false)))}
}

func sum(r *run, in any, a args) any {
	p := r.bind("sum", a, 0, "attribute", "start")
	get, total := r.getter(or(p[0], nil), nil), or(p[1], int64(0))
	if _, ok := total.(string); ok {
		r.fail("sum() can't sum strings")
	}
	next := r.iterate(in)
	for {
		v, ok := next()
		if !ok {
			return total
		}
		r.step(1)
		total = r.binary("+", total, get(v))
	}
}

func unique(r *run, in any, a args) any {
	p := r.bind("unique", a, 0, "case_sensitive", "attribute")
	sensitive := r.truth(or(p[0], false))
	var next iterFunc
	var get func(any) any
	seen := &Dict{}
	return &generator{kind: "generator", next: func() (any, bool) {
		if next == nil {
			get, next = r.getter(or(p[1], nil), nil), r.iterate(in)
		}
		for {
			v, ok := next()
			if !ok {
				return nil, false
			}
			n := seen.Len()
			r.setItem(seen, r.ignoreCase(get(v), sensitive), nil)
			if seen.Len() > n {
				return v, true
			}
		}
	}}
}
