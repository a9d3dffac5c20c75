package jinja

import (
	"slices"
	"strings"
	"time"
)

type run struct {
	meter
	now  time.Time
	root *scope
	out  *strings.Builder
}

func (r *run) write(s string) {
	r.charge(len(s), r.out.Len())
	r.out.WriteString(s)
}

func (r *run) capture(f func()) string {
	outer := r.out
	r.out = &strings.Builder{}
	defer func() { r.out = outer }()
	f()
	s := r.out.String()
	r.grow(len(s))
	return s
}

type scope struct {
	parent *scope
	vars   table[string]
}

func newScope(parent *scope) *scope { return &scope{parent: parent} }

func (s *scope) set(name string, value any) { s.vars.put(name, nil, value) }

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars.find(name); ok {
			return v, true
		}
	}
	return nil, false
}

type signal int

const (
	done signal = iota
	breaks
	continues
)

func (b block) run(r *run, s *scope) signal {
	for _, st := range b {
		r.step(1)
		if sig := st(r, s); sig != done {
			return sig
		}
	}
	return done
}

func (r *run) filtered(filters []filterCall, body block, s *scope) (v any, sig signal) {
	v = r.capture(func() { sig = body.run(r, newScope(s)) })
	if sig == done {
		for _, f := range filters {
			v = f(r, s, v)
		}
	}
	return v, sig
}

func (r *run) evalAll(es []expr, s *scope) []any {
	r.growList(len(es))
	out := make([]any, len(es))
	for i, e := range es {
		out[i] = e(r, s)
	}
	return out
}

func (t target) assign(r *run, v any, s *scope) {
	switch {
	case t.field != "":
		at, _ := s.get(t.name)
		ns, ok := at.(*namespace)
		if !ok {
			r.fail("can't set the field '%s' of '%s': it is no namespace", t.field, t.name)
		}
		r.setItem(ns.fields, t.field, v)
	case t.items == nil:
		s.set(t.name, v)
	default:
		for i, item := range r.unpack(v, len(t.items)) {
			t.items[i].assign(r, item, s)
		}
	}
}

type forLoop struct {
	target          target
	over            expr
	test            expr // may be nil
	body, otherwise block
	line            int
}

// run runs the else part if no pass reached the end of the body, as Python does.
func (f *forLoop) run(r *run, s *scope) signal {
	r.at(f.line)
	v := f.over(r, s)
	l := &loop{r: r, next: r.iterate(v), over: v, index0: -1, length: -1}
	if f.test != nil {
		l.next, l.over = f.passing(r, l.next, s), nil
	}
	completed := false
	for {
		item, ok := l.advance()
		if !ok {
			break
		}
		inner := newScope(s)
		inner.set("loop", l)
		r.at(f.line)
		f.target.assign(r, item, inner)
		sig := f.body.run(r, inner)
		if sig == breaks {
			break
		}
		completed = completed || sig == done
	}
	if !completed {
		return f.otherwise.run(r, newScope(s)) // a break or continue in it means the outer loop
	}
	return done
}

// passing returns the elements for which the loop's condition is true.
func (f *forLoop) passing(r *run, next iterFunc, s *scope) iterFunc {
	return func() (any, bool) {
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			inner := newScope(s)
			r.at(f.line)
			f.target.assign(r, item, inner)
			if !truth(f.test(r, inner)) {
				continue
			}
			if n := len(f.target.items); n > 0 { // Python makes a tuple of the items
				item = &tuple{r.unpack(item, n)}
			}
			return item, true
		}
	}
}

type macroDef struct {
	name     string // "" for a call block
	params   []string
	defaults []expr // of the last params
	body     block

	mentions map[string]bool // those of the special names that the body mentions
}

var noCaller = &undefined{"no caller defined"}

func (r *run) callValue(f any, a args) any {
	r.check(f)
	switch f := f.(type) {
	case *function:
		return f.invoke(r, f.name, f.self, a)
	case *macro:
		return f.call(r, a)
	}
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}

// call gives parameters values by position, then by name. The rest goes to varargs and kwargs, and the body of a call
// block to caller, if the macro mentions them.
func (m *macro) call(r *run, a args) any {
	def, s := m.def, newScope(m.scope)
	given := make([]any, len(def.params))
	n := copy(given, a.pos)
	for i := n; i < len(given); i++ {
		given[i] = required{}
	}
	kwargs, varargs := &Dict{}, &tuple{a.pos[n:]}
	var caller any = noCaller
	for i, name := range a.names {
		switch at := slices.Index(def.params, name); {
		case at >= n:
			given[at] = a.values[i]
		case name == "caller" && def.mentions[name]:
			caller = a.values[i]
		default:
			r.setItem(kwargs, name, a.values[i])
		}
	}
	switch {
	case len(varargs.items) > 0 && !def.mentions["varargs"]:
		r.fail("macro '%s' takes not more than %d arguments", def.name, len(def.params))
	case kwargs.Len() > 0 && !def.mentions["kwargs"]:
		r.fail("macro '%s' takes no keyword argument '%v'", def.name, kwargs.entries[0].key)
	}
	for name := range def.mentions {
		s.set(name, map[string]any{"kwargs": kwargs, "varargs": varargs, "caller": caller}[name])
	}
	var text string
	r.call(func() {
		for i, name := range def.params { // a default can use earlier parameters
			v := given[i]
			if v == (required{}) {
				v = &undefined{"parameter '" + name + "' was not provided"}
				if d := i - (len(def.params) - len(def.defaults)); d >= 0 {
					v = def.defaults[d](r, s)
				}
			}
			s.set(name, v)
		}
		text = r.capture(func() { def.body.run(r, s) })
	})
	return text
}

type loop struct {
	r    *run
	next iterFunc
	over any // for its length; nil if unknown

	index0          int64
	length          int // negative: unknown
	before, current any
	after           any
	hasAfter        bool
}

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

// len reads the rest of the elements if their number is unknown.
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
	}
	return nil, false
}
