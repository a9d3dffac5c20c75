package jinja

// signal says how statements ended.
type signal int

const (
	done signal = iota
	breaks
	continues
)

// body runs statements.
func (r *run) body(body []stmt, s *scope) signal {
	for _, st := range body {
		if sig := r.statement(st, s); sig != done {
			return sig
		}
	}
	return done
}

func (r *run) statement(st stmt, s *scope) signal {
	r.step(1)
	switch st := st.(type) {
	case *textStmt:
		r.write(st.text)
	case *outputStmt:
		r.line = st.line
		r.write(r.str(r.eval(st.of, s)))
	case *ifStmt:
		return r.ifElse(st, s)
	case *forStmt:
		r.line = st.line
		if st.recursive {
			r.write(r.recursive(st, r.eval(st.iter, s), s, 0))
			return done
		}
		return r.loop(st, r.eval(st.iter, s), s, nil)
	case *setStmt:
		r.line = st.line
		r.assign(st.target, r.eval(st.value, s), s)
	case *setBlockStmt:
		return r.setBlock(st, s)
	case *withStmt:
		return r.with(st, s)
	case *filterStmt:
		var sig signal
		text := r.capture(func() { sig = r.body(st.body, newScope(s)) })
		if sig == done {
			r.write(r.text("a filter block", r.filterText(st.filters, text, s)))
		}
		return sig
	case *macroStmt:
		r.line = st.line
		s.set(st.macro.name, &macro{def: st.macro, scope: s})
	case *callStmt:
		r.write(r.text("a call block", r.evalCall(st.call, s, &macro{def: st.caller, scope: s})))
	case *generationStmt:
		r.call(func() { r.write(r.capture(func() { r.body(st.body, newScope(s)) })) })
	case *breakStmt:
		return breaks
	case *continueStmt:
		return continues
	default:
		r.fail("internal fault: unknown statement %T", st)
	}
	return done
}

func (r *run) ifElse(st *ifStmt, s *scope) signal {
	for i, test := range st.tests {
		r.line = st.lines[i]
		if r.truth(r.eval(test, s)) {
			return r.body(st.bodies[i], s)
		}
	}
	if len(st.bodies) > len(st.tests) {
		return r.body(st.bodies[len(st.tests)], s)
	}
	return done
}

func (r *run) setBlock(st *setBlockStmt, s *scope) signal {
	var sig signal
	text := r.capture(func() { sig = r.body(st.body, newScope(s)) })
	if sig == done {
		r.line = st.line
		r.assign(st.target, r.filterText(st.filters, text, s), s)
	}
	return sig
}

// filterText runs the filters of a block.
func (r *run) filterText(fs []*filterExpr, text any, s *scope) any {
	for _, f := range fs {
		r.line = f.line
		text = r.filter(f.name, f.run, text, r.arguments(&f.args, s))
	}
	return text
}

func (r *run) with(st *withStmt, s *scope) signal {
	r.line = st.line
	inner := newScope(s)
	for i, t := range st.targets {
		r.assign(t, r.eval(st.values[i], s), inner)
	}
	return r.body(st.body, inner)
}

// assign gives v to a target in s.
func (r *run) assign(t target, v any, s *scope) {
	switch t := t.(type) {
	case *nameTarget:
		s.set(t.name, v)
	case *fieldTarget:
		at, _ := s.get(t.name)
		ns, ok := at.(*namespace)
		if !ok {
			r.fail("can't set the field '%s' of '%s': it is no namespace", t.field, t.name)
		}
		r.grow(2 * valueSize)
		ns.fields.put(t.field, t.field, v)
	case *tupleTarget:
		items := r.unpack(v, len(t.items))
		for i, item := range t.items {
			r.assign(item, items[i], s)
		}
	}
}

// unpack takes v apart into n values.
func (r *run) unpack(v any, n int) []any {
	next := r.iterate(v)
	items := make([]any, 0, n)
	for {
		e, ok := next()
		switch {
		case ok && len(items) == n:
			r.fail("too many values to unpack: want %d", n)
		case !ok && len(items) < n:
			r.fail("not enough values to unpack: want %d, have %d", n, len(items))
		case !ok:
			return items
		}
		items = append(items, e)
	}
}

// repack is the value of a target after an assignment: a tuple where it took one apart.
func repack(t target, s *scope) any {
	if t, ok := t.(*tupleTarget); ok {
		items := make([]any, len(t.items))
		for i, item := range t.items {
			items[i] = repack(item, s)
		}
		return &tuple{items: items}
	}
	v, _ := s.get(t.(*nameTarget).name)
	return v
}

// loop runs a for statement over v. recurse is nil but for a recursive loop.
//
// As in Python, the else part runs where no pass came to the end of the body, be it for want of elements or for continue.
func (r *run) loop(st *forStmt, v any, s *scope, recurse *recursion) signal {
	next := r.iterate(v)
	if st.test != nil {
		next, v = r.filtered(st, next, s), nil
	}
	l := newLoop(r, next, v, recurse)
	completed := false
	for {
		item, ok := l.advance()
		if !ok {
			break
		}
		r.step(1)
		inner := newScope(s)
		inner.set("loop", l)
		r.line = st.line
		r.assign(st.target, item, inner)
		sig := r.body(st.body, inner)
		if sig == breaks {
			break
		}
		if sig == done {
			completed = true
		}
	}
	if !completed && st.otherwise != nil {
		return r.body(st.otherwise, newScope(s)) // a loop control in it means the loop around
	}
	return done
}

// filtered is next without the elements for which the loop's condition is false.
func (r *run) filtered(st *forStmt, next iterFunc, s *scope) iterFunc {
	return func() (any, bool) {
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			r.step(1)
			inner := newScope(s)
			r.line = st.line
			r.assign(st.target, item, inner)
			if r.truth(r.eval(st.test, inner)) {
				return repack(st.target, inner), true
			}
		}
	}
}

// recursion is a recursive loop, which calls itself with other elements.
type recursion struct {
	st    *forStmt
	scope *scope
	depth int
}

// recursive runs a recursive loop and returns its text.
func (r *run) recursive(st *forStmt, v any, s *scope, depth int) (text string) {
	r.call(func() {
		text = r.capture(func() { r.loop(st, v, s, &recursion{st, s, depth}) })
	})
	return text
}
