package cpu

import (
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/lora"
)

// noTarget marks products that no adapter changes.
const noTarget = lora.NumTargets

// input is what the next product's matrices are multiplied with, in the forms that they need.
type input struct {
	ints, floats       kernel.Input
	hasInts, hasFloats bool
	t                  int
}

// resize makes room for t vectors of cols values for some matrices, and for adapters.
func (in *input) resize(t, cols int, adapters bool, matrices ...*matrix) {
	in.t, in.hasInts, in.hasFloats = t, false, adapters
	for _, m := range matrices {
		if m.floats {
			in.hasFloats = true
		} else {
			in.hasInts = true
		}
	}
	if in.hasInts {
		in.ints.Resize(gguf.Q8_0, t, cols)
	}
	if in.hasFloats {
		in.floats.Resize(gguf.F32, t, cols)
	}
}

func (in *input) load(x []float32, lo, hi int) {
	if in.hasInts {
		in.ints.Load(x, lo, hi)
	}
	if in.hasFloats {
		in.floats.Load(x, lo, hi)
	}
}

func (in *input) of(m *matrix) *kernel.Input {
	if m.floats {
		return &in.floats
	}
	return &in.ints
}

func (in *input) bytes() int64 { return in.ints.Bytes() + in.floats.Bytes() }

// site is how prepare makes a product's input.
type site struct {
	add    []float32 // [T, Dim] first this is added to x; nil: nothing is
	post   []float32 // and before that it is normed; nil: it is not
	norm   []float32 // x is normed; nil: raw goes in as it is
	keep   []float32 // [T, Dim] where the normed x stays; nil: nowhere
	raw    []float32 // [T, cols]
	cols   int       // of raw
	tokens []int     // which tokens go in; nil: all

	first, last lora.Target // adapters that take part; noTarget: none
}

// normed makes the norm of x the input of some matrices, after what s.site has to add.
func (s *step) normed(w []float32, first, last lora.Target, matrices ...*matrix) {
	n := len(s.tokens)
	s.site.norm, s.site.first, s.site.last = w, first, last
	s.input.resize(n, s.conf.Dim, s.lora(first, last), matrices...)
	s.parallel(groups(n), n*s.conf.Dim*16, s.stages.prepare)
}

// raw makes x [T, cols] the input of a matrix.
func (s *step) raw(x []float32, cols int, target lora.Target, m *matrix) {
	n := len(s.tokens)
	s.site = site{raw: x, cols: cols, first: target, last: target}
	s.input.resize(n, cols, s.lora(target, target), m)
	s.parallel(groups(n), n*cols*8, s.stages.prepare)
}

// group is how many tokens a chunk of prepare takes.
const group = 4

func groups(n int) int { return (n + group - 1) / group }

// prepareChunk prepares the vectors of some tokens.
func (s *step) prepareChunk(member, chunk int) {
	lo, hi := chunk*group, min(s.input.t, chunk*group+group)
	for j := lo; j < hi; j++ {
		i := j
		if s.site.tokens != nil {
			i = s.site.tokens[j]
		}
		s.prepareToken(member, i, j)
	}
	if s.site.first < noTarget && len(s.adapters) > 0 {
		s.shrink(member, lo, hi)
	}
}

// prepareToken makes vector j of the input from token i.
func (s *step) prepareToken(member, i, j int) {
	c, st := &s.conf, &s.site
	if st.norm == nil {
		s.input.load(st.raw[i*st.cols:][:st.cols], j, j+1)
		return
	}
	y := s.addOut(member, i)
	kernel.RMSNorm(y, s.x[i*c.Dim:][:c.Dim], st.norm, c.RMSEps)
	if st.keep != nil {
		copy(st.keep[i*c.Dim:], y)
	}
	s.input.load(y, j, j+1)
}

// addOut adds to a token's x what the part of a layer before has left for it. It gives
// some memory [Dim].
func (s *step) addOut(member, i int) []float32 {
	c, w := &s.conf, &s.members[member]
	w.y = resize(w.y, c.Dim)
	if s.site.add == nil {
		return w.y
	}
	x, out := s.x[i*c.Dim:][:c.Dim], s.site.add[i*c.Dim:][:c.Dim]
	if s.site.post != nil {
		kernel.RMSNorm(w.y, out, s.site.post, c.RMSEps)
		out = w.y
	}
	kernel.Add(x, out)
	return w.y
}
