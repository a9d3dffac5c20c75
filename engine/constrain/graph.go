package constrain

import "slices"

// place is a state of a rule's automaton, which is nondeterministic.
type place struct {
	edges []edge
	skips []int32 // epsilon edges
	calls []call
	final bool // the rule may end here
	// free: any plain text may follow, and again after any transition; in a loop, up to the loop's count.
	free bool
	loop *loop
	at   inLoop
}

// loop counts iterations in the threads that are in it. Loops nest only through rules.
type loop struct {
	min, max int32 // max < 0: no limit
	open     bool  // plain text may follow it
}

// inLoop is the role of a place in its loop.
type inLoop uint8

const (
	enter inLoop = iota // an iteration begins, if one more is allowed
	again               // an iteration has ended
	leave               // the loop ends, if there were enough
)

// edge goes to a place with any byte of a range.
type edge struct {
	byteRange
	to int32
}

// call goes to a place with any text of a rule.
type call struct{ rule, to int32 }

// graph is an automaton over bytes without calls: one that can be intersected with another.
type graph struct {
	places []place
	start  int32
}

// builder makes the automata of all rules in one list of places.
type builder struct {
	places []place
	rules  map[*rule]int32
	starts []int32 // of each rule
	names  []string
	queue  []*rule
	only   *[256]bool // allowed bytes; nil: all
	unroll bool       // loops are written out instead of counted
	depth  int
	meter  *meter
	err    error
}

// ok reports whether to continue.
func (b *builder) ok() bool {
	if b.err == nil {
		b.err = b.meter.err
	}
	return b.err == nil
}

// add adds a place.
func (b *builder) add() int32 {
	if len(b.places) >= maxNodes {
		b.fail("it is too large: it has more than %d places; want less repetition, fewer choices or shorter limits", maxNodes)
		return 0
	}
	b.meter.spend(1, placeSize)
	b.places = append(b.places, place{})
	return int32(len(b.places) - 1)
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = formError(format, args...)
	}
}

// edge adds an edge, without the forbidden bytes.
func (b *builder) edge(from, to int32, r byteRange) {
	b.meter.spend(1, edgeSize)
	if b.only == nil {
		b.places[from].edges = append(b.places[from].edges, edge{r, to})
		return
	}
	for lo := int(r.lo); lo <= int(r.hi); lo++ {
		if !b.only[lo] {
			continue
		}
		hi := lo
		for hi < int(r.hi) && b.only[hi+1] {
			hi++
		}
		b.places[from].edges = append(b.places[from].edges, edge{byteRange{byte(lo), byte(hi)}, to})
		lo = hi
	}
}

// emit adds paths between two places for every text of x. It never adds an edge into from or out of to.
func (b *builder) emit(x expr, from, to int32) {
	if b.depth++; b.depth > 8*maxDepth {
		b.fail("it is nested too deeply")
	}
	defer func() { b.depth-- }()
	if b.meter.spend(1, 0); !b.ok() {
		return
	}
	switch x := x.(type) {
	case nil:
		b.skip(from, to)
	case literal:
		b.bytes([]byte(x), from, to)
	case control:
		only := b.only
		b.only = nil
		b.bytes(controlBytes(int32(x)), from, to)
		b.only = only
	case class:
		b.class(x, from, to)
	case sequence:
		b.sequence(x, from, to)
	case choice:
		b.choice(x, from, to)
	case repeat:
		b.repeat(x, from, to)
	case *rule:
		n := b.rule(x)
		b.meter.spend(1, edgeSize)
		b.places[from].calls = append(b.places[from].calls, call{n, to})
	case *graph:
		b.graph(x, from, to)
	default:
		panic("constrain: an unknown kind of form")
	}
}

func (b *builder) skip(from, to int32) {
	b.meter.spend(1, edgeSize)
	b.places[from].skips = append(b.places[from].skips, to)
}

func (b *builder) bytes(text []byte, from, to int32) {
	if len(text) == 0 {
		b.skip(from, to)
	}
	for i, c := range text {
		next := to
		if i < len(text)-1 {
			next = b.add()
		}
		b.edge(from, next, byteRange{c, c})
		from = next
	}
}

// class shares common suffixes of the characters' encodings.
func (b *builder) class(c class, from, to int32) {
	type tail struct {
		r  byteRange
		to int32
	}
	shared := map[tail]int32{}
	for _, s := range c.normal() {
		encodings(s, func(ranges []byteRange) {
			next := to
			for i := len(ranges) - 1; i > 0; i-- {
				at, ok := shared[tail{ranges[i], next}]
				if !ok {
					at = b.add()
					b.edge(at, next, ranges[i])
					shared[tail{ranges[i], next}] = at
				}
				next = at
			}
			b.edge(from, next, ranges[0])
		})
	}
}

func (b *builder) sequence(s sequence, from, to int32) {
	if len(s) == 0 {
		b.skip(from, to)
	}
	for i, x := range s {
		next := to
		if i < len(s)-1 {
			next = b.add()
		}
		b.emit(x, from, next)
		from = next
	}
}

// choice shares common prefixes: a thousand names are as fast as one.
func (b *builder) choice(c choice, from, to int32) {
	groups := map[byte][]string{}
	var order []byte
	empty := false
	for _, x := range c {
		text, ok := x.(literal)
		if !ok {
			b.emit(x, from, to)
			continue
		}
		if b.meter.spend(1, 16); !b.ok() {
			return
		}
		if text == "" {
			if !empty {
				b.skip(from, to)
			}
			empty = true
			continue
		}
		if groups[text[0]] == nil {
			order = append(order, text[0])
		}
		groups[text[0]] = append(groups[text[0]], string(text))
	}
	for _, first := range order {
		b.texts(groups[first], from, to)
	}
}

// texts adds texts that begin with the same byte.
func (b *builder) texts(texts []string, from, to int32) {
	common := len(texts[0])
	for _, t := range texts[1:] {
		n := 0
		for n < min(common, len(t)) && t[n] == texts[0][n] {
			n++
		}
		common = n
	}
	if len(texts) == 1 {
		b.bytes([]byte(texts[0]), from, to)
		return
	}
	fork := b.add()
	b.bytes([]byte(texts[0][:common]), from, fork)
	rest := choice{}
	for _, t := range texts {
		rest = append(rest, literal(t[common:]))
	}
	b.emit(rest, fork, to)
}

func (b *builder) repeat(r repeat, from, to int32) {
	if r.max >= 0 && r.max < r.min {
		return // no text
	}
	free := plainly(r.x)
	if !b.unroll && (max(r.min, r.max) >= minCounted || r.max > 0 && free) {
		b.loop(r, from, to)
		return
	}
	for range r.min {
		if free && r.max < 0 && b.places[from].loop == nil {
			b.places[from].free = true
		}
		next := b.add()
		b.emit(r.x, from, next)
		if from = next; !b.ok() {
			return
		}
	}
	if r.max < 0 {
		loop := b.add()
		b.skip(from, loop)
		b.emit(r.x, loop, loop)
		b.skip(loop, to)
		b.places[loop].free = free
		return
	}
	for range r.max - r.min {
		next := b.add()
		b.skip(from, to)
		b.emit(r.x, from, next)
		if from = next; !b.ok() {
			return
		}
	}
	b.skip(from, to)
}

// minCounted is the least number of iterations that are counted; fewer are written out.
const minCounted = 8

// loop adds a counted repetition.
func (b *builder) loop(r repeat, from, to int32) {
	if r.min > maxNodes {
		b.fail("it is too large: it repeats something %d times or more; want smaller limits", r.min)
	}
	l := &loop{min: int32(r.min), max: int32(r.max)}
	add := func(at inLoop) int32 {
		n := b.add()
		b.places[n].loop, b.places[n].at = l, at
		return n
	}
	first, next, last := add(enter), add(again), add(leave)
	b.places[first].free = plainly(r.x)
	b.skip(from, first)
	if r.min == 0 {
		b.skip(from, to)
	}
	b.unroll = true
	b.emit(r.x, first, next)
	b.unroll = false
	b.skip(next, first)
	b.skip(next, last)
	b.skip(last, to)
}

// plain is the characters that need no escape in a JSON string.
var plain = special.not()

// plainly reports whether a form has every text of one plain character, and besides them only single characters and
// escapes.
func plainly(x expr) bool {
	switch x := x.(type) {
	case class:
		return len(x) < 16 && len(plain.and(x.not())) == 0
	case choice:
		return len(x) > 0 && plainly(x[0]) && !slices.ContainsFunc(x[1:], func(y expr) bool { return !escape(y) })
	}
	return false
}

// escape reports whether a form begins like an escape in a JSON string.
func escape(x expr) bool {
	switch x := x.(type) {
	case literal:
		return x != "" && x[0] == '\\'
	case sequence:
		return len(x) > 0 && escape(x[0])
	}
	return false
}

func (b *builder) graph(g *graph, from, to int32) {
	base := int32(len(b.places))
	for range g.places {
		b.add()
	}
	if !b.ok() {
		return
	}
	b.skip(from, base+g.start)
	for i := range g.places {
		at, p := base+int32(i), &g.places[i]
		for _, e := range p.edges {
			b.edge(at, base+e.to, e.byteRange)
		}
		for _, s := range p.skips {
			b.skip(at, base+s)
		}
		if p.final {
			b.skip(at, to)
		}
		b.places[at].free = p.free
	}
}

// rule returns a rule's number. Its body is added later, because a rule may contain itself.
func (b *builder) rule(r *rule) int32 {
	n, ok := b.rules[r]
	if !ok {
		n = int32(len(b.starts))
		b.rules[r] = n
		b.starts = append(b.starts, b.add())
		b.meter.spend(1, 2*exprSize)
		b.names = append(b.names, r.name)
		b.queue = append(b.queue, r)
	}
	return n
}

// all adds the bodies of all rules that are called.
func (b *builder) all() {
	for len(b.queue) > 0 && b.ok() {
		r := b.queue[0]
		b.queue = b.queue[1:]
		end := b.add()
		b.places[end].final = true
		b.emit(r.body, b.starts[b.rules[r]], end)
	}
}

// newGraph returns the automaton of a form without rules.
func newGraph(m *meter, x expr) (*graph, error) {
	b := &builder{rules: map[*rule]int32{}, meter: m, unroll: true}
	start, end := b.add(), b.add()
	b.places[end].final = true
	b.emit(x, start, end)
	if !b.ok() {
		return nil, b.err
	}
	if len(b.starts) > 0 {
		panic("constrain: a rule in a form that is to be intersected")
	}
	return &graph{places: b.places, start: start}, nil
}

// intersect returns the automaton of the texts that both have.
func intersect(m *meter, a, c *graph) (*graph, error) {
	type pair struct{ a, c int32 }
	g := &graph{}
	at := map[pair]int32{}
	var queue []pair
	find := func(p pair) int32 {
		n, ok := at[p]
		if !ok {
			n = int32(len(g.places))
			at[p] = n
			g.places = append(g.places, place{final: a.places[p.a].final && c.places[p.c].final, free: a.places[p.a].free && c.places[p.c].free})
			queue = append(queue, p)
		}
		return n
	}
	g.start = find(pair{a.start, c.start})
	for len(queue) > 0 {
		if len(g.places) > maxNodes {
			return nil, formError("it is too large: the conditions on one text multiply to more than %d places", maxNodes)
		}
		p := queue[0]
		queue = queue[1:]
		from, and := &a.places[p.a], &c.places[p.c]
		if !m.spend(4+2*len(from.skips)+2*len(and.skips)+len(from.edges)*len(and.edges), 2*placeSize+exprSize) {
			return nil, m.err
		}
		var out place
		for _, s := range from.skips {
			out.skips = append(out.skips, find(pair{s, p.c}))
		}
		for _, s := range and.skips {
			out.skips = append(out.skips, find(pair{p.a, s}))
		}
		for _, e := range from.edges {
			for _, f := range and.edges {
				if lo, hi := max(e.lo, f.lo), min(e.hi, f.hi); lo <= hi {
					out.edges = append(out.edges, edge{byteRange{lo, hi}, find(pair{e.to, f.to})})
				}
			}
		}
		m.spend(0, edgeSize*(len(out.edges)+len(out.skips)))
		n := at[p]
		g.places[n].edges, g.places[n].skips = out.edges, out.skips
	}
	return g, nil
}

// any reports whether the automaton has a text. All places of an intersection are reachable.
func (g *graph) any() bool {
	for i := range g.places {
		if g.places[i].final {
			return true
		}
	}
	return false
}
