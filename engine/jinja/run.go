package jinja

import (
	"context"
	"strings"
	"time"
)

// run is one rendering.
type run struct {
	meter
	now  time.Time
	root *scope
	out  *strings.Builder
}

func newRun(ctx context.Context, o Options) *run {
	b := o.Budget.withDefaults()
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	return &run{meter: meter{ctx: ctx, end: time.Now().Add(b.Time), budget: b}, now: now, root: &scope{}, out: &strings.Builder{}}
}

// write writes output, of the template or of a macro or block.
func (r *run) write(s string) {
	r.charge(len(s), r.out.Len())
	r.out.WriteString(s)
}

// capture returns what f writes.
func (r *run) capture(f func()) string {
	outer := r.out
	r.out = &strings.Builder{}
	defer func() { r.out = outer }()
	f()
	s := r.out.String()
	r.grow(len(s))
	return s
}

// scope holds the variables of a block, which sees those around it.
type scope struct {
	parent *scope
	vars   []variable
	index  map[string]int // of vars, once they are many
}

type variable struct {
	name  string
	value any
}

// many is how many variables a scope finds by looking at each.
const many = 12

func newScope(parent *scope) *scope { return &scope{parent: parent} }

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range s.vars {
		if s.vars[i].name == name {
			return i
		}
	}
	return -1
}

func (s *scope) set(name string, value any) {
	if i := s.find(name); i >= 0 {
		s.vars[i].value = value
		return
	}
	s.vars = append(s.vars, variable{name, value})
	switch {
	case s.index != nil:
		s.index[name] = len(s.vars) - 1
	case len(s.vars) > many:
		s.index = make(map[string]int, 2*many)
		for i := range s.vars {
			s.index[s.vars[i].name] = i
		}
	}
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.vars[i].value, true
		}
	}
	return nil, false
}

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
		return r.forLoop(st, r.eval(st.iter, s), s)
	case *setStmt:
		r.line = st.line
		r.assign(st.target, r.eval(st.value, s), s)
	case *setBlockStmt:
		text, sig := r.filtered(st.filters, st.body, s)
		if sig == done {
			r.line = st.line
			r.assign(st.target, text, s)
		}
		return sig
	case *filterStmt:
		text, sig := r.filtered(st.filters, st.body, s)
		if sig == done {
			r.write(r.text("a filter block", text))
		}
		return sig
	case *macroStmt:
		s.set(st.macro.name, &macro{st.macro, s})
	case *callStmt:
		r.write(r.text("a call block", r.evalCall(st.call, s, &macro{st.caller, s})))
	case *generationStmt:
		r.call(func() { r.write(r.capture(func() { r.body(st.body, newScope(s)) })) })
	case *breakStmt:
		return breaks
	case *continueStmt:
		return continues
	}
	return done
}

func (r *run) ifElse(st *ifStmt, s *scope) signal {
	for i, test := range st.tests {
		r.line = st.lines[i]
		if truth(r.eval(test, s)) {
			return r.body(st.bodies[i], s)
		}
	}
	if len(st.bodies) > len(st.tests) {
		return r.body(st.bodies[len(st.tests)], s)
	}
	return done
}

// filtered returns what a body writes, through filters.
func (r *run) filtered(filters []*filterExpr, body []stmt, s *scope) (v any, sig signal) {
	v = r.capture(func() { sig = r.body(body, newScope(s)) })
	if sig == done {
		for _, f := range filters {
			r.line = f.line
			v = r.filter(f.name, f.run, v, r.arguments(&f.args, s))
		}
	}
	return v, sig
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
		r.setItem(ns.fields, t.field, v)
	case *tupleTarget:
		for i, item := range r.unpack(v, len(t.items)) {
			r.assign(t.items[i], item, s)
		}
	}
}

// forLoop runs a for statement over v. As in Python, the else part runs where no pass came to the end of the body, be it for
// want of elements or for continue.
func (r *run) forLoop(st *forStmt, v any, s *scope) signal {
	l := &loop{r: r, next: r.iterate(v), over: v, index0: -1, length: -1}
	if st.test != nil {
		l.next, l.over = r.passing(st, l.next, s), nil
	}
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
		completed = completed || sig == done
	}
	if !completed && st.otherwise != nil {
		return r.body(st.otherwise, newScope(s)) // a break or continue in it means the loop around
	}
	return done
}

// passing returns the elements for which the loop's condition is true.
func (r *run) passing(st *forStmt, next iterFunc, s *scope) iterFunc {
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
			if !truth(r.eval(st.test, inner)) {
				continue
			}
			if t, ok := st.target.(*tupleTarget); ok { // Python makes a tuple of what it took apart
				item = &tuple{r.unpack(item, len(t.items))}
			}
			return item, true
		}
	}
}

// loop is the variable of that name.
type loop struct {
	r    *run
	next iterFunc
	over any // for its length; nil where that is not known

	index0          int64
	length          int // negative before it is asked for
	before, current any
	after           any
	hasAfter        bool
}

// advance goes to the next element.
func (l *loop) advance() (any, bool) {
	item, ok := l.peek()
	if ok {
		l.after, l.hasAfter = nil, false
		l.index0++
		l.before, l.current = l.current, item
	}
	return item, ok
}

func (l *loop) peek() (any, bool) {
	if !l.hasAfter {
		l.after, l.hasAfter = l.next()
	}
	return l.after, l.hasAfter
}

// len returns how many elements there are. Where it is not known, it reads the rest.
func (l *loop) len() int64 {
	if l.length < 0 {
		n, ok := length(l.over)
		if !ok || l.over == nil {
			rest := l.r.list(&generator{next: l.next})
			l.next = l.r.iterate(&List{rest})
			if n = len(rest) + int(l.index0) + 1; l.hasAfter {
				n++
			}
		}
		l.length = n
	}
	return int64(l.length)
}

// attribute is loop.name.
func (l *loop) attribute(name string) (any, bool) {
	switch name {
	case "index":
		return l.index0 + 1, true
	case "index0":
		return l.index0, true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return l.len(), true
	case "revindex":
		return l.len() - l.index0, true
	case "revindex0":
		return l.len() - l.index0 - 1, true
	case "previtem":
		if l.index0 == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		if item, more := l.peek(); more {
			return item, true
		}
		return &undefined{"there is no next item"}, true
	case "cycle":
		return &function{name, l, &routine{raw: func(r *run, _ any, a args) any {
			if len(a.pos) == 0 || len(a.names) > 0 {
				r.fail("loop.cycle wants values")
			}
			return a.pos[l.index0%int64(len(a.pos))]
		}}}, true
	}
	return nil, false
}
