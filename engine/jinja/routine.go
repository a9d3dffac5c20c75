package jinja

import "slices"

type args struct {
	pos    []any
	names  []string
	values []any
}

// A routine is a filter, a test, a method or a global. in is the value in front of | or is, or the object of a
// method.
type routine struct {
	names    []string
	defaults []any
	call     func(r *run, in any, a []any) any // with a value for each parameter
	raw      func(r *run, in any, a args) any  // used instead of call by a routine that reads its arguments itself
}

// required is the default of a parameter without one.
type required struct{}

// define returns a routine for a function and its parameters: a name and a default each.
func define(call func(r *run, in any, a []any) any, params ...any) *routine {
	f := &routine{call: call}
	for i := 0; i < len(params); i += 2 {
		f.names = append(f.names, params[i].(string))
		f.defaults = append(f.defaults, params[i+1])
	}
	return f
}

func (f *routine) invoke(r *run, name string, in any, a args) any {
	if f.raw != nil {
		return f.raw(r, in, a)
	}
	return f.call(r, in, f.bind(r, name, a))
}

func (f *routine) bind(r *run, name string, a args) []any {
	if len(a.pos) == len(f.names) && len(a.names) == 0 {
		return a.pos
	}
	if len(a.pos) > len(f.names) {
		r.fail("%s takes at most %d arguments, got %d", name, len(f.names), len(a.pos))
	}
	out := append(slices.Clone(a.pos), f.defaults[len(a.pos):]...)
	for i, keyword := range a.names {
		at := slices.Index(f.names, keyword)
		if at < 0 {
			r.fail("%s takes no keyword argument '%s'", name, keyword)
		}
		if at < len(a.pos) {
			r.fail("%s got multiple values for the argument '%s'", name, keyword)
		}
		out[at] = a.values[i]
	}
	if at := slices.Index(out, any(required{})); at >= 0 {
		r.fail("%s misses the argument '%s'", name, f.names[at])
	}
	return out
}
