package constrain

import (
	"slices"
	"sort"
	"unicode/utf8"
)

type place struct {
	loop int32 // 0: none
	at   inLoop
	// free: any plain text may follow, and again after any transition; in a loop, up to its count.
	free  bool
	final bool
}

// loop counts iterations of the threads in it. Loops nest only through rules.
type loop struct {
	min, max int32    // max < 0: no limit
	open     bool     // plain text may follow
	lengths  *lengths // of the places within it, if it counts characters; the first is base
	base     int32
}

type inLoop uint8

const (
	ordinary inLoop = iota
	enter           // an iteration begins, if one more is allowed
	again           // an iteration has ended
	leave           // the loop ends, if there were enough
)

// arc leads to another place with a byte of a range, any text of a rule, or nothing.
type arc struct {
	from, to int32
	rule     int32 // or byByte or byNothing
	byteRange
}

const (
	byByte    int32 = -1
	byNothing int32 = -2
)

var noBytes = byteRange{1, 0}

type arcs struct {
	begin []int32
	all   []arc
}

// arcsBy groups arcs by a number below n; without negative ones.
func arcsBy(n int, list []arc, number func(*arc) int32) arcs {
	a := arcs{begin: make([]int32, n+2)}
	for i := range list {
		if k := number(&list[i]); k >= 0 {
			a.begin[k+2]++
		}
	}
	for k := range n {
		a.begin[k+2] += a.begin[k+1]
	}
	a.all = make([]arc, a.begin[n+1])
	for i := range list {
		if k := number(&list[i]); k >= 0 {
			a.all[a.begin[k+1]] = list[i]
			a.begin[k+1]++
		}
	}
	return a
}

func (a *arcs) of(number int32) []arc { return a.all[a.begin[number]:a.begin[number+1]] }

// graph is an automaton over bytes without calls, so it can be intersected.
type graph struct {
	places []place
	out    arcs
	start  int32
}

// builder makes the automata of all rules in one list of places.
type builder struct {
	*meter
	places []place
	arcs   []arc
	loops  []loop // loops[0] stands for none
	rules  map[*rule]int32
	starts []int32
	queue  []*rule
	only   *[256]bool // allowed bytes; nil: all
	unroll bool       // writes loops out instead of counting
	depth  int
}

func newBuilder(m *meter, only *[256]bool, unroll bool) *builder {
	return &builder{loops: []loop{{max: -1}}, rules: map[*rule]int32{}, only: only, unroll: unroll, meter: m}
}

func (b *builder) add() int32 { return b.addIn(0, ordinary) }

func (b *builder) addIn(loop int32, at inLoop) int32 {
	if len(b.places) >= maxNodes {
		b.fail("it is too large: it has more than %d places; want less repetition, fewer choices or shorter limits", maxNodes)
		return 0
	}
	b.spend(1, placeSize)
	b.places = append(b.places, place{loop: loop, at: at})
	return int32(len(b.places) - 1)
}

func (b *builder) arc(from, to, rule int32, r byteRange) {
	b.spend(1, arcSize)
	b.arcs = append(b.arcs, arc{from, to, rule, r})
}

func (b *builder) skip(from, to int32) { b.arc(from, to, byNothing, noBytes) }

func (b *builder) edge(from, to int32, r byteRange) {
	if b.only == nil {
		b.arc(from, to, byByte, r)
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
		b.arc(from, to, byByte, byteRange{byte(lo), byte(hi)})
		lo = hi
	}
}

// emit adds paths between two places for every text of x. It never adds an arc into from or out of to.
func (b *builder) emit(x expr, from, to int32) {
	if b.depth++; b.depth > 8*maxDepth {
		b.fail("it is nested too deeply")
	}
	defer func() { b.depth-- }()
	if b.spend(1, 0); b.err != nil {
		return
	}
	switch x := x.(type) {
	case nil:
		b.skip(from, to)
	case literal:
		b.bytes(string(x), from, to)
	case control:
		only := b.only
		b.only = nil
		b.bytes(string(controlBytes(int32(x))), from, to)
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
		b.arc(from, to, b.rule(x), noBytes)
	case *graph:
		b.graph(x, from, to)
	case except:
		b.except(x, from, to)
	case inOrder:
		b.inOrder(x, from, to)
	case counted:
		b.counted(x, from, to)
	default:
		panic("constrain: an unknown kind of form")
	}
}

func (b *builder) bytes(text string, from, to int32) {
	if text == "" {
		b.skip(from, to)
	}
	for i := range len(text) {
		next := to
		if i < len(text)-1 {
			next = b.add()
		}
		b.edge(from, next, byteRange{text[i], text[i]})
		from = next
	}
}

// class shares common suffixes of encodings.
func (b *builder) class(c class, from, to int32) {
	type tail struct {
		r  byteRange
		to int32
	}
	var shared map[tail]int32
	for _, s := range c.normal() {
		if s.hi < utf8.RuneSelf {
			b.edge(from, to, byteRange{byte(s.lo), byte(s.hi)})
			continue
		}
		if shared == nil {
			shared = map[tail]int32{}
		}
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

// choice shares common prefixes of texts.
func (b *builder) choice(c choice, from, to int32) {
	var texts []string
	for _, x := range c {
		text, ok := x.(literal)
		if !ok {
			b.emit(x, from, to)
		} else if !b.spend(1+len(text)/16, 16) {
			return
		} else {
			texts = append(texts, string(text))
		}
	}
	slices.Sort(texts)
	b.texts(slices.Compact(texts), 0, from, to)
}

// texts adds what follows the first at bytes, which are the same in all of the sorted texts.
func (b *builder) texts(texts []string, at int, from, to int32) {
	for len(texts) > 0 && b.err == nil {
		first := texts[0]
		if len(first) == at {
			b.skip(from, to)
			texts = texts[1:]
			continue
		}
		n := sort.Search(len(texts), func(i int) bool { return texts[i][at] != first[at] })
		if last := texts[n-1]; n == 1 {
			b.bytes(first[at:], from, to)
		} else {
			end := at + 1
			for end < len(first) && first[end] == last[end] {
				end++
			}
			fork := b.add()
			b.bytes(first[at:end], from, fork)
			b.texts(texts[:n], end, fork, to)
		}
		texts = texts[n:]
	}
}

func (b *builder) repeat(r repeat, from, to int32) {
	if r.max >= 0 && r.max < r.min {
		return
	}
	free := plainly(r.x)
	if !b.unroll && (max(r.min, r.max) >= minCounted || r.max > 0 && free) {
		b.loop(r, from, to)
		return
	}
	for range r.min {
		if free && r.max < 0 && b.places[from].loop == 0 {
			b.places[from].free = true
		}
		next := b.add()
		b.emit(r.x, from, next)
		if from = next; b.err != nil {
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
		if from = next; b.err != nil {
			return
		}
	}
	b.skip(from, to)
}

const minCounted = 8 // iterations; fewer are written out

func (b *builder) loop(r repeat, from, to int32) {
	if r.min >= maxNodes { // as much as smallNumber tells
		b.fail("it is too large: it repeats something %d times or more; want smaller limits", r.min)
	}
	n := b.addLoop(r.min, r.max)
	first, next, last := b.addIn(n, enter), b.addIn(n, again), b.addIn(n, leave)
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

func (b *builder) addLoop(min, max int) int32 {
	b.spend(1, exprSize)
	b.loops = append(b.loops, loop{min: int32(min), max: int32(max)})
	return int32(len(b.loops) - 1)
}

// plain is the characters that need no escape in a JSON string.
var plain = special.not()

// plainly reports whether a form has every text of one plain character, and otherwise only single characters and
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
	for _, p := range g.places {
		if n := b.add(); b.err == nil {
			b.places[n].free = p.free
		}
	}
	if b.err != nil {
		return
	}
	b.skip(from, base+g.start)
	for _, a := range g.out.all {
		if a.rule == byByte {
			b.edge(base+a.from, base+a.to, a.byteRange)
		} else {
			b.skip(base+a.from, base+a.to)
		}
	}
	for i, p := range g.places {
		if p.final {
			b.skip(base+int32(i), to)
		}
	}
}

// newGraph is for a form without rules.
func newGraph(m *meter, x expr) *graph {
	if g, ok := x.(*graph); ok {
		return g
	}
	b := newBuilder(m, nil, true)
	start, end := b.add(), b.add()
	b.emit(x, start, end)
	return b.done(start, end)
}

func (b *builder) done(start int32, ends ...int32) *graph {
	if b.err != nil {
		return &graph{places: make([]place, 1), out: arcsBy(1, nil, nil)}
	}
	if len(b.starts) > 0 {
		panic("constrain: a rule in a form that is to be intersected")
	}
	for _, at := range ends {
		b.places[at].final = true
	}
	return &graph{b.places, arcsBy(len(b.places), b.arcs, func(a *arc) int32 { return a.from }), start}
}

func intersect(m *meter, a, c *graph) *graph {
	type pair struct{ a, c int32 }
	b := newBuilder(m, nil, true)
	known := map[pair]int32{}
	var pairs []pair
	find := func(p pair) int32 {
		n, ok := known[p]
		if !ok {
			n = b.add()
			known[p] = n
			pairs = append(pairs, p)
			m.spend(3, placeSize+exprSize)
			from, and := &a.places[p.a], &c.places[p.c]
			b.places[n].final, b.places[n].free = from.final && and.final, from.free && and.free
		}
		return n
	}
	start := find(pair{a.start, c.start})
	for n := int32(0); int(n) < len(pairs) && b.err == nil; n++ {
		p := pairs[n]
		out, other := a.out.of(p.a), c.out.of(p.c)
		m.spend(1+len(out)*len(other), 0)
		for _, e := range out {
			if e.rule != byByte {
				b.skip(n, find(pair{e.to, p.c}))
				continue
			}
			for _, f := range other {
				if lo, hi := max(e.lo, f.lo), min(e.hi, f.hi); lo <= hi {
					b.arc(n, find(pair{e.to, f.to}), byByte, byteRange{lo, hi})
				}
			}
		}
		for _, f := range other {
			if f.rule != byByte {
				b.skip(n, find(pair{p.a, f.to}))
			}
		}
	}
	return b.done(start)
}

// The body of a rule is added later: it may contain itself.
func (b *builder) rule(r *rule) int32 {
	n, ok := b.rules[r]
	if !ok {
		n = int32(len(b.starts))
		b.rules[r] = n
		b.starts = append(b.starts, b.add())
		b.spend(1, 2*exprSize)
		b.queue = append(b.queue, r)
	}
	return n
}

func (b *builder) all() {
	for n := 0; n < len(b.queue) && b.err == nil; n++ {
		end := b.add()
		b.places[end].final = true
		b.emit(b.queue[n].body, b.starts[n], end)
	}
}
