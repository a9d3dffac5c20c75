package cpu

import (
	"math"

	"github.com/rouse-dev/rouse/engine/kernel"
)

// mixture is the assignment of tokens to experts. A slot is one token in one expert. Slots are sorted by expert, so
// that each expert has one product with all of its tokens.
type mixture struct {
	y      []float32 // [T, Dim] normed x; then the experts' weighted sum
	scores []float32 // [T, Experts]
	chosen []int32   // [T, used] experts, the largest weight first
	weight []float32 // [T, used]
	slot   []int32   // [T, used] slot of each choice
	tokens []int     // [S] the token of each slot
	begin  []int     // [Experts+1] first slot of each expert
	terms  []term
}

// experts is feedForward for a mixture: out = Σ weight·Down_e·(act(Gate_e·y)·(Up_e·y)) over the token's chosen
// experts.
func (s *step) experts(l *layer) error {
	c, n, m := &s.conf, len(s.tokens), &s.mix
	m.y, m.scores = resize(m.y, n*c.Dim), resize(m.scores, n*c.Experts)
	s.site.keep = m.y
	s.normed(l.ffnNorm, nil, noTarget, noTarget, l.router)
	s.mul(term{m: l.router, hi: c.Experts, out: m.scores, stride: c.Experts, target: noTarget, t1: n})
	s.route()

	slots := n * c.ExpertsUsed
	s.site = site{raw: m.y, cols: c.Dim, tokens: m.tokens, first: noTarget}
	s.input.resize(slots, c.Dim, false, l.all...)
	s.parallel(groups(slots), slots*c.Dim*8, s.stages.prepare)
	s.mulExperts(func(e int) term {
		return term{m: l.gates[e], up: l.ups[e], lo: s.share.ffn.lo, hi: s.share.ffn.hi, out: s.gate, stride: c.ExpertFFN}
	})
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.site = site{raw: s.gate, cols: c.ExpertFFN, first: noTarget}
	s.input.resize(slots, c.ExpertFFN, false, l.downs...)
	s.parallel(groups(slots), slots*c.ExpertFFN*8, s.stages.prepare)
	s.mulExperts(func(e int) term {
		return term{m: l.downs[e], lo: s.share.dim.lo, hi: s.share.dim.hi, out: s.out, stride: c.Dim}
	})
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.parallel(n, slots*c.Dim*2, s.stages.combine)
	s.site = site{add: m.y, post: l.ffnPostNorm}
	return nil
}

// mulExperts computes one term for each expert that has slots.
func (s *step) mulExperts(of func(e int) term) {
	m := &s.mix
	m.terms = m.terms[:0]
	for e := range s.conf.Experts {
		if m.begin[e] == m.begin[e+1] {
			continue
		}
		t := of(e)
		t.t0, t.t1, t.target = m.begin[e], m.begin[e+1], noTarget
		m.terms = append(m.terms, t)
	}
	s.mul(m.terms...)
}

// route chooses each token's experts and sorts the slots.
func (s *step) route() {
	c, m, n := &s.conf, &s.mix, len(s.tokens)
	slots := n * c.ExpertsUsed
	m.chosen, m.weight = resize(m.chosen, slots), resize(m.weight, slots)
	m.slot, m.tokens, m.begin = resize(m.slot, slots), resize(m.tokens, slots), resize(m.begin, c.Experts+1)
	s.parallel(n, n*c.Experts*c.ExpertsUsed*4, s.stages.route)
	clear(m.begin)
	for _, e := range m.chosen {
		m.begin[e+1]++
	}
	for e := range c.Experts {
		m.begin[e+1] += m.begin[e]
	}
	// begin[e] is moved to the end of e's slots, where the next expert's begin.
	for i, e := range m.chosen {
		m.slot[i] = int32(m.begin[e])
		m.tokens[m.begin[e]] = i / c.ExpertsUsed
		m.begin[e]++
	}
	copy(m.begin[1:], m.begin[:c.Experts])
	m.begin[0] = 0
}

// routeChunk chooses one token's experts: the largest of the softmax over the router's scores; of equals the first.
func (s *step) routeChunk(_, i int) {
	c, m := &s.conf, &s.mix
	p := m.scores[i*c.Experts:][:c.Experts]
	top := float32(math.Inf(-1))
	for _, v := range p {
		top = max(top, v)
	}
	var sum float32
	for e, v := range p {
		p[e] = kernel.Exp(v - top)
		sum += p[e]
	}
	chosen, weight := m.chosen[i*c.ExpertsUsed:][:c.ExpertsUsed], m.weight[i*c.ExpertsUsed:][:c.ExpertsUsed]
	var used float32
	for k := range chosen {
		best := -1
		for e, v := range p {
			if v >= 0 && (best < 0 || v > p[best]) {
				best = e
			}
		}
		if best < 0 { // the rest is NaN, and so is the result, whichever expert is chosen
			best = k
			p[best] = float32(math.NaN())
		}
		chosen[k], weight[k] = int32(best), p[best]/sum
		used += weight[k]
		p[best] = -1
	}
	if c.ExpertNorm {
		for k := range weight {
			weight[k] /= used
		}
	}
}

// combineChunk sums one token's slots, in the order of its chosen experts.
func (s *step) combineChunk(_, i int) {
	c, m := &s.conf, &s.mix
	y := m.y[i*c.Dim:][:c.Dim]
	clear(y)
	for k := i * c.ExpertsUsed; k < (i+1)*c.ExpertsUsed; k++ {
		kernel.Axpy(y, m.weight[k], s.out[int(m.slot[k])*c.Dim:][:c.Dim])
	}
}
