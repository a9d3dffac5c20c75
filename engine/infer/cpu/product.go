package cpu

import (
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

// term is one matrix that is multiplied with the input: out = m·x + bias, [T, Rows]. With
// add it is then added to add, [T, Rows]. With up it becomes silu(m·x) · (up·x), upOut being
// room for the second factor.
type term struct {
	m     *model.Matrix
	out   []float32
	bias  []float32
	add   []float32
	up    *model.Matrix
	upOut []float32
}

// product is up to three terms with the same input.
type product []term

const (
	// worthwhile is the work, in multiplications, from which several goroutines are quicker than
	// one: some 100 µs. An idle machine would gain from half of that, a busy one loses, because
	// a stage waits for whichever goroutine the system has put aside.
	worthwhile = 1 << 18
	// chunkBytes is the size of weights that a chunk should not exceed, so that they stay
	// in the first-level cache while all tokens pass.
	chunkBytes = 24 << 10
	// rowStep is the granularity of chunks: MulF32 takes four rows at a time.
	rowStep = 4
)

// parallel runs n chunks, on several goroutines if they cost enough.
func (s *step) parallel(n, cost int, do func(member, chunk int)) {
	if cost < worthwhile {
		for i := range n {
			do(0, i)
		}
		return
	}
	s.team.run(n, do)
}

// plan is how a product is cut: chunks of rows of each term.
type plan struct {
	terms [3]term
	n     int    // terms
	rows  [3]int // rows per chunk of a term
	first [4]int // first chunk of a term; first[n] is the number of chunks
	x     []float32
	t     int // vectors in x
}

// mul computes a product with t vectors x [t, Cols].
func (s *step) mul(t int, x []float32, p product) {
	cols, cost, q8 := p[0].m.Cols, 0, false
	pl := &s.plan
	pl.n, pl.x, pl.t = copy(pl.terms[:], p), x[:t*cols], t
	for i := range p {
		cost += t * cols * p[i].m.Rows
		q8 = q8 || p[i].m.Type == gguf.Q8_0 || p[i].up != nil && p[i].up.Type == gguf.Q8_0
	}
	if q8 {
		s.input.Resize(t, cols)
		s.parallel(s.input.Groups(), t*cols*8, s.stages.load)
	}
	for i := range p {
		m := p[i].m
		rows := m.Rows
		if cost >= worthwhile {
			bytes := max(len(m.Data)/m.Rows, 1)
			rows = min(chunkBytes/bytes, cost/(t*cols*s.team.size*4))
			rows = max(rowStep, rows/rowStep*rowStep)
		}
		pl.rows[i] = rows
		pl.first[i+1] = pl.first[i] + (m.Rows+rows-1)/rows
	}
	s.parallel(pl.first[pl.n], cost, s.stages.mul)
}

// loadChunk prepares one group of vectors for multiplication with Q8_0 rows.
func (s *step) loadChunk(_, g int) {
	cols := s.plan.terms[0].m.Cols
	lo, hi := s.input.Group(g)
	s.input.Load(g, s.plan.x[lo*cols:hi*cols])
}

// mulChunk computes some rows of one term for all vectors.
func (s *step) mulChunk(member, chunk int) {
	pl := &s.plan
	i := 0
	for chunk >= pl.first[i+1] {
		i++
	}
	t := &pl.terms[i]
	lo := (chunk - pl.first[i]) * pl.rows[i]
	hi := min(t.m.Rows, lo+pl.rows[i])
	s.rows(member, t.m, t.out, lo, hi)
	if t.up != nil {
		s.rows(member, t.up, t.upOut, lo, hi)
	}
	for j := range pl.t {
		at := j*t.m.Rows + lo
		out := t.out[at:][:hi-lo]
		if t.bias != nil {
			kernel.Add(out, t.bias[lo:hi])
		}
		if t.up != nil {
			kernel.SiLUMul(out, t.upOut[at:][:hi-lo])
		}
		if t.add != nil {
			kernel.Add(t.add[at:][:hi-lo], out)
		}
	}
}

// rows multiplies rows lo…hi of a matrix with all vectors: out is [t, Rows].
func (s *step) rows(member int, m *model.Matrix, out []float32, lo, hi int) {
	pl := &s.plan
	switch m.Type {
	case gguf.Q8_0:
		size := len(m.Data) / m.Rows
		s.input.Mul(out[lo:], m.Rows, m.Data[lo*size:hi*size])
	case gguf.F32:
		kernel.MulF32(out[lo:], m.Rows, m.F32[lo*m.Cols:hi*m.Cols], pl.x, pl.t, m.Cols)
	default:
		w := &s.members[member]
		w.wide = resize(w.wide, rowStep*m.Cols)
		for ; lo < hi; lo += rowStep {
			n := min(rowStep, hi-lo)
			wide := w.wide[:n*m.Cols]
			widen(wide, m, lo)
			kernel.MulF32(out[lo:], m.Rows, wide, pl.x, pl.t, m.Cols)
		}
	}
}
