package cpu

import (
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/lora"
)

// noTarget marks products that no adapter changes.
const noTarget = lora.NumTargets

// input is of the next products, in the forms that their matrices need.
type input struct {
	ints, floats       kernel.Input
	hasInts, hasFloats bool
	t                  int
}

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

// site says how prepare makes a product's input.
type site struct {
	add    []float32 // [T, Dim] added to x first; may be nil
	post   []float32 // norm applied to add before that; may be nil
	norm   []float32 // norm applied to x; nil: raw is used unchanged
	bias   []float32 // of an encoder's norm
	scale  float32   // of x after add; 0: none
	keep   []float32 // [T, Dim] receives the normed x; may be nil
	raw    []float32 // [T, cols]
	cols   int       // of raw
	tokens []int     // to use; nil: all

	first, last lora.Target // adapter targets; noTarget: none
}

// normed makes the norm of x, after adding what s.site holds, the input of some matrices.
func (s *step) normed(w, bias []float32, first, last lora.Target, matrices ...*matrix) {
	n := len(s.tokens)
	s.site.norm, s.site.bias, s.site.first, s.site.last = w, bias, first, last
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

const group = 4 // tokens in a chunk of prepare

func groups(n int) int { return (n + group - 1) / group }

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

func (s *step) prepareToken(member, i, j int) {
	c, st := &s.conf, &s.site
	if st.norm == nil {
		s.input.load(st.raw[i*st.cols:][:st.cols], j, j+1)
		return
	}
	y := s.norm(s.addOut(member, i), i, st.norm, st.bias)
	if st.keep != nil {
		copy(st.keep[i*c.Dim:], y)
	}
	s.input.load(y, j, j+1)
}

// norm's result is in y, or in an encoder in x itself.
func (s *step) norm(y []float32, i int, w, bias []float32) []float32 {
	c := &s.conf
	x := s.x[i*c.Dim:][:c.Dim]
	if c.Encoder {
		kernel.LayerNorm(x, x, w, bias, c.RMSEps)
		return x
	}
	if bias != nil {
		kernel.LayerNorm(y, x, w, bias, c.RMSEps)
		return y
	}
	kernel.RMSNorm(y, x, w, c.RMSEps)
	return y
}

// addOut adds the previous part's output to a token's x, and returns scratch memory [Dim].
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
	if kernel.Add(x, out); s.site.scale != 0 {
		kernel.Scale(x, s.site.scale)
	}
	return w.y
}
