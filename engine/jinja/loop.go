package jinja

// loop is the variable of that name.
type loop struct {
	next    iterFunc
	over    any // what is walked over, for its length; nil where that is unknown
	recurse *recursion
	run     *run

	index0          int64
	before, current any
	after           any
	hasAfter        bool
	known           int // the length, -1 before it is asked for
	changedTo       []any
	wasChanged      bool
}

func newLoop(r *run, next iterFunc, over any, recurse *recursion) *loop {
	return &loop{next: next, over: over, recurse: recurse, run: r, index0: -1, known: -1}
}

// advance goes to the next element.
func (l *loop) advance() (any, bool) {
	item, ok := l.after, true
	if l.hasAfter {
		l.after, l.hasAfter = nil, false
	} else {
		item, ok = l.next()
	}
	if !ok {
		return nil, false
	}
	l.index0++
	l.before, l.current = l.current, item
	return item, true
}

func (l *loop) peek() (any, bool) {
	if !l.hasAfter {
		l.after, l.hasAfter = l.next()
	}
	return l.after, l.hasAfter
}

func (l *loop) length(r *run) int64 {
	if l.known < 0 {
		if n, ok := length(l.over); ok && l.over != nil {
			l.known = n
		} else {
			rest := r.list(&generator{next: l.next})
			l.next = r.iterate(NewList(rest...))
			l.known = len(rest) + int(l.index0) + 1
			if l.hasAfter {
				l.known++
			}
		}
	}
	return int64(l.known)
}

// attribute is loop.name.
func (l *loop) attribute(r *run, name string) (any, bool) {
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
		return l.length(r), true
	case "revindex":
		return l.length(r) - l.index0, true
	case "revindex0":
		return l.length(r) - l.index0 - 1, true
	case "depth", "depth0":
		depth := int64(0)
		if l.recurse != nil {
			depth = int64(l.recurse.depth)
		}
		if name == "depth" {
			depth++
		}
		return depth, true
	case "previtem":
		if l.index0 == 0 {
			return r.undefinedf("there is no previous item"), true
		}
		return l.before, true
	case "nextitem":
		item, more := l.peek()
		if !more {
			return r.undefinedf("there is no next item"), true
		}
		return item, true
	case "cycle":
		return &function{name: "cycle", self: l, call: l.cycle}, true
	case "changed":
		return &function{name: "changed", self: l, call: l.changed}, true
	}
	return nil, false
}

func (l *loop) cycle(r *run, a args) any {
	if len(a.pos) == 0 || len(a.names) > 0 {
		r.fail("loop.cycle wants values")
	}
	return a.pos[l.index0%int64(len(a.pos))]
}

func (l *loop) changed(r *run, a args) any {
	if len(a.names) > 0 {
		r.fail("loop.changed takes no keyword arguments")
	}
	same := l.wasChanged && r.equal(&tuple{items: l.changedTo}, &tuple{items: a.pos})
	l.changedTo, l.wasChanged = a.pos, true
	return !same
}

// call is loop(elements) in a recursive loop.
func (l *loop) call(r *run, a args) any {
	if l.recurse == nil {
		r.fail("a loop that is called must be marked 'recursive'")
	}
	v := r.bind("loop", a, 1, "iterable")
	return r.recursive(l.recurse.st, v[0], l.recurse.scope, l.recurse.depth+1)
}

// cycler is the global of that name.
type cycler struct {
	items []any
	pos   int
}

func (c *cycler) attribute(name string) (any, bool) {
	switch name {
	case "current":
		return c.items[c.pos], true
	case "pos":
		return int64(c.pos), true
	case "items":
		return &tuple{items: c.items}, true
	case "next":
		return &function{name: "next", self: c, call: func(r *run, a args) any {
			r.bind("cycler.next", a, 0)
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &function{name: "reset", self: c, call: func(r *run, a args) any {
			r.bind("cycler.reset", a, 0)
			c.pos = 0
			return nil
		}}, true
	}
	return nil, false
}
