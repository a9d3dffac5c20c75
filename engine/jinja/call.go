package jinja

import (
	"slices"
	"strings"
)

// args are the arguments of a call.
type args struct {
	pos    []any
	names  []string // of the keyword arguments
	values []any
}

// arguments evaluates those of a call.
func (r *run) arguments(c *callArgs, s *scope) args {
	var a args
	if len(c.args) > 0 {
		a.pos = make([]any, 0, len(c.args))
	}
	for _, e := range c.args {
		a.pos = append(a.pos, r.eval(e, s))
	}
	if c.star != nil {
		a.pos = append(a.pos, r.list(r.eval(c.star, s))...)
	}
	for i, e := range c.values {
		a.names = append(a.names, c.names[i])
		a.values = append(a.values, r.eval(e, s))
	}
	if c.stars != nil {
		d, ok := r.eval(c.stars, s).(*Dict)
		if !ok {
			r.fail("the argument behind ** must be a mapping")
		}
		r.growList(2 * d.Len())
		seen := map[string]bool{}
		for _, name := range a.names {
			seen[name] = true
		}
		for _, e := range d.entries {
			name, ok := e.key.(string)
			if !ok {
				r.fail("keywords must be strings")
			}
			if seen[name] {
				r.fail("got multiple values for keyword argument '%s'", name)
			}
			a.names, a.values = append(a.names, name), append(a.values, e.value)
		}
	}
	return a
}

// missing is an argument that was not given.
type missing struct{}

// bind gives a function's parameters their arguments: required ones first, then those that may be missing{}. A parameter
// whose name begins with "/" is by place only.
func (r *run) bind(fn string, a args, required int, params ...string) []any {
	if len(a.pos) > len(params) {
		r.fail("%s takes at most %d arguments, got %d", fn, len(params), len(a.pos))
	}
	out := make([]any, len(params))
	copy(out, a.pos)
	for i := len(a.pos); i < len(params); i++ {
		out[i] = missing{}
	}
	for i, name := range a.names {
		at := slices.Index(params, name)
		if at < 0 {
			r.fail("%s takes no keyword argument '%s'", fn, name)
		}
		if at < len(a.pos) {
			r.fail("%s got multiple values for the argument '%s'", fn, name)
		}
		out[at] = a.values[i]
	}
	for i := range required {
		if out[i] == (missing{}) {
			r.fail("%s misses the argument '%s'", fn, strings.TrimPrefix(params[i], "/"))
		}
	}
	return out
}

// or is v, or otherwise where v was not given.
func or(v, otherwise any) any {
	if v == (missing{}) {
		return otherwise
	}
	return v
}

// evalCall evaluates a call; caller is the body of a call block, nil for none.
func (r *run) evalCall(c *callExpr, s *scope, caller *macro) any {
	f := r.eval(c.of, s)
	a := r.arguments(&c.args, s)
	if caller != nil {
		if slices.Contains(a.names, "caller") {
			r.fail("got multiple values for keyword argument 'caller'")
		}
		a.names, a.values = append(a.names, "caller"), append(a.values, caller)
	}
	r.line = c.line
	return r.callValue(f, a)
}

func (r *run) callValue(f any, a args) any {
	r.step(1)
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case *macro:
		return r.callMacro(f, a)
	case *loop:
		return f.call(r, a)
	case *undefined:
		r.fail("%s", f.message)
	}
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}

// callMacro runs a macro. Its arguments are those of jinja2.runtime.Macro:
//
//  1. by place, as many as there are parameters;
//  2. by name, for the parameters that are left;
//  3. the body of the call block, where the macro mentions caller;
//  4. what is left over, where it mentions kwargs or varargs.
func (r *run) callMacro(m *macro, a args) any {
	def, s := m.def, newScope(m.scope)
	given := make([]any, len(def.params))
	n := copy(given, a.pos) // 1
	named := make(map[string]any, len(a.names))
	order := slices.Clone(a.names)
	for i, name := range a.names {
		named[name] = a.values[i]
	}
	take := func(name string) any {
		v, ok := named[name]
		if !ok {
			return missing{}
		}
		delete(named, name)
		return v
	}
	foundCaller := n == len(def.params) && def.explicitCaller
	for i := n; i < len(def.params); i++ { // 2
		given[i] = take(def.params[i])
		foundCaller = foundCaller || def.params[i] == "caller"
	}
	if def.caller && !foundCaller { // 3
		caller := or(take("caller"), nil)
		if caller == nil {
			caller = r.undefinedf("no caller defined")
		}
		s.set("caller", caller)
	}
	r.leftOver(def, s, a, named, order) // 4
	var text string
	r.call(func() {
		r.defaults(def, s, given)
		text = r.capture(func() { r.body(def.body, s) })
	})
	return text
}

func (r *run) leftOver(def *macroDef, s *scope, a args, named map[string]any, order []string) {
	if def.kwargs {
		d := &Dict{}
		for _, name := range order {
			if v, ok := named[name]; ok {
				r.setItem(d, name, v)
			}
		}
		s.set("kwargs", d)
	} else if len(named) > 0 {
		for _, name := range order {
			if _, ok := named[name]; ok {
				r.fail("macro '%s' takes no keyword argument '%s'", def.name, name)
			}
		}
	}
	if extra := len(a.pos) - len(def.params); def.varargs {
		t := &tuple{}
		if extra > 0 {
			t.items = a.pos[len(def.params):]
		}
		s.set("varargs", t)
	} else if extra > 0 {
		r.fail("macro '%s' takes not more than %d arguments", def.name, len(def.params))
	}
}

// defaults sets the parameters; a default sees those in front of it.
func (r *run) defaults(def *macroDef, s *scope, given []any) {
	for i, name := range def.params {
		v := given[i]
		if v == (missing{}) {
			if d := i - (len(def.params) - len(def.defaults)); d >= 0 {
				v = r.eval(def.defaults[d], s)
			} else {
				v = r.undefinedf("parameter '" + name + "' was not provided")
			}
		}
		s.set(name, v)
	}
}

// attribute is macro.name.
func (m *macro) attribute(name string) (any, bool) {
	switch name {
	case "name":
		if m.def.name == "" {
			return nil, true
		}
		return m.def.name, true
	case "arguments":
		t := &tuple{}
		for _, p := range m.def.params {
			t.items = append(t.items, p)
		}
		return t, true
	case "catch_kwargs":
		return m.def.kwargs, true
	case "catch_varargs":
		return m.def.varargs, true
	case "caller":
		return m.def.caller, true
	case "explicit_caller":
		return m.def.explicitCaller, true
	}
	return nil, false
}
