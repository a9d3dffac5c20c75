package cpu

import (
	"sort"

	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/lora"
)

// term is out [T, stride] = m·x + bias + the adapter's share, of rows lo…hi and vectors t0…t1 of the input. With up
// it is act(m·x)·(up·x).
type term struct {
	m      *matrix
	up     *matrix
	lo, hi int
	t0, t1 int
	out    []float32
	stride int
	base   int // the row that out begins with
	bias   []float32
	upBias []float32
	gelu   bool // out = gelu(m·x + bias)
	target lora.Target
}

const (
	// worthwhile is the multiplications, some 10 µs, from which several goroutines are faster than one. A busy
	// machine loses with half of that.
	worthwhile = 1 << 18
	chunkWork  = 1 << 16 // least multiplications of a chunk
	// inputBytes of activations in a chunk stay in the L2 cache while the rows pass.
	inputBytes = 192 << 10
)

func (s *step) parallel(n, cost int, do func(member, chunk int)) {
	if cost < worthwhile {
		s.team.alone(n, do)
		return
	}
	s.team.run(n, do)
}

// plan divides a product into chunks: first by tokens, then by rows.
type plan struct {
	terms []term
	cuts  []cut
	n     int
}

type cut struct {
	first  int // chunk
	rows   int // per chunk, a multiple of kernel.Tile
	across int // chunks across the rows
	tokens int // per chunk
}

func (s *step) mul(terms ...term) {
	p := &s.plan
	p.terms, p.cuts, p.n = append(p.terms[:0], terms...), p.cuts[:0], 0
	cost := 0
	for i := range p.terms {
		cost += p.terms[i].cost()
	}
	for i := range p.terms {
		p.cut(&p.terms[i], cost, s.team.size)
	}
	s.parallel(p.n, cost, s.stages.mul)
}

func (t *term) cost() int {
	n := (t.t1 - t.t0) * (t.hi - t.lo) * t.m.Cols
	if t.up != nil {
		n *= 2
	}
	return n
}

func (p *plan) cut(t *term, cost, members int) {
	bytes := t.m.Cols
	if t.m.floats {
		bytes *= 4
	}
	n := max(t.t1-t.t0, 1)
	times := (n*bytes + inputBytes - 1) / inputBytes
	tokens := min(n, ((n+times-1)/times+7)/8*8)
	tile := kernel.Tile * t.m.Cols * tokens
	want := max(chunkWork, min(cost/(8*members), 64*chunkWork))
	c := cut{first: p.n, tokens: tokens, rows: max(1, want/max(tile, 1)) * kernel.Tile}
	c.across = (t.hi - t.lo + c.rows - 1) / c.rows
	p.cuts = append(p.cuts, c)
	p.n += c.across * ((t.t1 - t.t0 + tokens - 1) / tokens)
}

func (s *step) mulChunk(member, chunk int) {
	p := &s.plan
	i := sort.Search(len(p.cuts), func(i int) bool { return p.cuts[i].first > chunk }) - 1
	t, c := &p.terms[i], &p.cuts[i]
	chunk -= c.first
	lo, t0 := t.lo+chunk%c.across*c.rows, t.t0+chunk/c.across*c.tokens
	hi, t1 := min(t.hi, lo+c.rows), min(t.t1, t0+c.tokens)
	w := &s.members[member]
	t.m.Mul(t.out, t.stride, s.input.of(t.m), t0, t1, lo, hi, &w.kernel)
	if t.bias != nil {
		for j := t0; j < t1; j++ {
			kernel.Add(t.out[j*t.stride+lo:][:hi-lo], t.bias[lo:hi])
		}
	}
	s.grow(member, t.target, term{out: t.out, stride: t.stride, t0: t0, t1: t1, lo: lo, hi: hi})
	if t.up != nil {
		s.gated(member, t, t0, t1, lo, hi)
	}
	for j := t0; t.gelu && j < t1; j++ {
		kernel.GELU(t.out[j*t.stride+lo:][:hi-lo])
	}
}

// gated multiplies act(m·x), which is in t.out, with up·x.
func (s *step) gated(member int, t *term, t0, t1, lo, hi int) {
	w, n := &s.members[member], hi-lo
	up := t.up.part(lo, hi)
	w.rows = resize(w.rows, t1*n)
	up.Mul(w.rows, n, s.input.of(t.up), t0, t1, 0, n, &w.kernel)
	if t.target < noTarget {
		s.grow(member, lora.Up, term{out: w.rows, stride: n, base: lo, t0: t0, t1: t1, lo: lo, hi: hi})
	}
	act := kernel.SiLUMul
	switch {
	case s.conf.GELU:
		act = kernel.GELUMul
	case s.conf.ClampedGate:
		act = kernel.ClampedMul
	}
	for j := t0; j < t1; j++ {
		gate, up := t.out[j*t.stride+lo:][:n], w.rows[j*n:][:n]
		if t.upBias != nil {
			kernel.Add(up, t.upBias[lo:hi])
		}
		act(gate, up)
	}
}
