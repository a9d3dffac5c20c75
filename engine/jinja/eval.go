package jinja

import "slices"

// eval evaluates an expression.
func (r *run) eval(e expr, s *scope) any {
	r.step(1)
	switch e := e.(type) {
	case *constant:
		return e.value
	case *nameExpr:
		if v, ok := s.get(e.name); ok {
			return v
		}
		if f, ok := globals[e.name]; ok {
			return f
		}
		return &undefined{"'" + e.name + "' is undefined"}
	case *attrExpr:
		v := r.eval(e.of, s)
		r.line = e.line
		return r.attribute(v, e.name)
	case *itemExpr:
		v, index := r.eval(e.of, s), r.eval(e.index, s)
		r.line = e.line
		return r.getItem(v, index)
	case *callExpr:
		return r.evalCall(e, s, nil)
	case *filterExpr:
		v := r.eval(e.of, s)
		a := r.arguments(&e.args, s)
		r.line = e.line
		return r.filter(e.name, e.run, v, a)
	case *testExpr:
		v := r.eval(e.of, s)
		a := r.arguments(&e.args, s)
		r.line = e.line
		return e.run.invoke(r, e.name, v, a)
	case *binaryExpr:
		left, right := r.eval(e.left, s), r.eval(e.right, s)
		r.line = e.line
		return r.binary(e.op, left, right)
	case *compareExpr:
		return r.compare(e, s)
	case *concatExpr:
		return r.concat(e, s)
	case *andExpr:
		if v := r.eval(e.left, s); !truth(v) {
			return v
		}
		return r.eval(e.right, s)
	case *orExpr:
		if v := r.eval(e.left, s); truth(v) {
			return v
		}
		return r.eval(e.right, s)
	case *notExpr:
		return !truth(r.eval(e.of, s))
	case *condExpr:
		switch {
		case truth(r.eval(e.test, s)):
			return r.eval(e.then, s)
		case e.otherwise != nil:
			return r.eval(e.otherwise, s)
		}
		return &undefined{"the inline if-expression evaluated to false and no else section was defined"}
	}
	return r.display(e, s)
}

// display evaluates the rarer expressions: lists, tuples, dicts, slices and signs.
func (r *run) display(e expr, s *scope) any {
	switch e := e.(type) {
	case *listExpr:
		return &List{r.evalAll(e.items, s)}
	case *tupleExpr:
		return &tuple{r.evalAll(e.items, s)}
	case *dictExpr:
		d := &Dict{}
		for i := range e.keys {
			k, v := r.eval(e.keys[i], s), r.eval(e.values[i], s)
			r.line = e.line
			r.setItem(d, k, v)
		}
		return d
	case *sliceExpr:
		all := r.evalAll([]expr{e.of, e.from, e.to, e.by}, s)
		r.line = e.line
		return r.slice(all[0], all[1], all[2], all[3])
	case *signExpr:
		v := r.eval(e.of, s)
		r.line = e.line
		if f, ok := v.(float64); ok && e.op == "-" {
			return -f
		}
		return r.binary(e.op, int64(0), v)
	}
	return nil // a bound that a slice does not have
}

func (r *run) evalAll(es []expr, s *scope) []any {
	r.growList(len(es))
	out := make([]any, len(es))
	for i, e := range es {
		out[i] = r.eval(e, s)
	}
	return out
}

// concat is a ~ b: the texts of values, one behind the other.
func (r *run) concat(e *concatExpr, s *scope) any {
	parts := make([]string, len(e.items))
	for i, item := range e.items {
		parts[i] = r.str(r.eval(item, s))
	}
	return r.joinTexts(parts, "")
}

// compare evaluates a chain of comparisons as far as they hold.
func (r *run) compare(e *compareExpr, s *scope) any {
	left := r.eval(e.first, s)
	for i, op := range e.ops {
		right := r.eval(e.with[i], s)
		r.line = e.line
		if !r.holds(op, left, right) {
			return false
		}
		left = right
	}
	return true
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
	return a
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
	r.step(1)
	r.check(f)
	switch f := f.(type) {
	case *function:
		return f.invoke(r, f.name, f.self, a)
	case *macro:
		return r.callMacro(f, a)
	}
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}

// callMacro runs a macro. Parameters have values by place, then by name. What is left goes to varargs and kwargs, and the body
// of a call block to caller, where the macro mentions them.
func (r *run) callMacro(m *macro, a args) any {
	def, s := m.def, newScope(m.scope)
	given := make([]any, len(def.params))
	n := copy(given, a.pos)
	for i := n; i < len(given); i++ {
		given[i] = required{}
	}
	kwargs, varargs := &Dict{}, &tuple{a.pos[n:]}
	var caller any = &undefined{"no caller defined"}
	for i, name := range a.names {
		switch at := slices.Index(def.params, name); {
		case at >= n:
			given[at] = a.values[i]
		case name == "caller" && def.caller:
			caller = a.values[i]
		default:
			r.setItem(kwargs, name, a.values[i])
		}
	}
	if len(varargs.items) > 0 && !def.varargs {
		r.fail("macro '%s' takes not more than %d arguments", def.name, len(def.params))
	}
	if kwargs.Len() > 0 && !def.kwargs {
		r.fail("macro '%s' takes no keyword argument '%v'", def.name, kwargs.entries[0].key)
	}
	for _, v := range []struct {
		mentioned bool
		name      string
		value     any
	}{{def.caller, "caller", caller}, {def.kwargs, "kwargs", kwargs}, {def.varargs, "varargs", varargs}} {
		if v.mentioned {
			s.set(v.name, v.value)
		}
	}
	var text string
	r.call(func() {
		r.parameters(def, s, given)
		text = r.capture(func() { r.body(def.body, s) })
	})
	return text
}

// parameters sets those of a macro; a default sees those in front of it.
func (r *run) parameters(def *macroDef, s *scope, given []any) {
	for i, name := range def.params {
		v := given[i]
		if v == (required{}) {
			if d := i - (len(def.params) - len(def.defaults)); d >= 0 {
				v = r.eval(def.defaults[d], s)
			} else {
				v = &undefined{"parameter '" + name + "' was not provided"}
			}
		}
		s.set(name, v)
	}
}
