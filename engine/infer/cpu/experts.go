package cpu

import (
	"cmp"
	"math"

	"github.com/rouse-dev/rouse/engine/kernel"
)

// mixture assigns tokens to experts. A slot is one token in one expert. Slots are sorted by expert, so each expert has one product.
type mixture struct {
	y      []float32 // [T, Dim] normed x; then the experts' weighted sum
	shared []float32 // [T, Dim] the shared expert's output
	scores []float32 // [T, Experts] router's logits, then weights
	order  []float32 // [T, Experts] by which experts are chosen, where that is not the weight
	chosen []int32   // [T, used] experts, the largest weight first
	weight []float32 // [T, used]
	slot   []int32   // [T, used] slot of each choice
	tokens []int     // [S] the token of each slot
	begin  []int     // [Experts+1] first slot of each expert
	terms  []term
}

// experts computes out = Σ weight·Down_e·(act(Gate_e·y)·(Up_e·y)) over the token's chosen experts, and the shared
// expert's output.
func (s *step) experts(l *layer) error {
	c, n, m := &s.conf, len(s.tokens), &s.mix
	part := s.share.even(c.ExpertFFN, kernel.Tile)
	m.y, m.scores = resize(m.y, n*c.Dim), resize(m.scores, n*c.Experts)
	if l.RouterNorm != nil {
		s.parallel(n, n*c.Dim*4, s.stages.settle)
		s.site = site{}
		s.normed(l.RouterNorm, nil, noTarget, noTarget, l.router)
	} else {
		s.site.keep = m.y
		s.normed(l.FFNNorm, nil, noTarget, noTarget, l.first...)
	}
	s.mul(term{m: l.router, hi: c.Experts, out: m.scores, stride: c.Experts, bias: l.RouterBias, target: noTarget, t1: n})
	s.route()
	if l.RouterNorm != nil {
		s.site = site{keep: m.y}
		s.normed(l.ExpertNorm, nil, noTarget, noTarget)
		s.site = site{}
		s.normed(l.FFNNorm, nil, noTarget, noTarget, l.gate, l.up)
	}
	if l.gate != nil {
		if err := cmp.Or(s.dense(l, c.SharedFFN, noTarget, noTarget), s.ex.sync()); err != nil {
			return err
		}
		m.shared = append(m.shared[:0], s.out[:n*c.Dim]...)
	}

	slots := n * c.ExpertsUsed
	s.site = site{raw: m.y, cols: c.Dim, tokens: m.tokens, first: noTarget}
	s.input.resize(slots, c.Dim, false, l.all...)
	s.parallel(groups(slots), slots*c.Dim*8, s.stages.prepare)
	s.mulExperts(func(e int) term {
		return term{m: l.gates[e], up: l.ups[e], lo: part.lo, hi: part.hi, out: s.gate, stride: c.ExpertFFN, bias: row(l.ExpertGateBias, e, c.ExpertFFN), upBias: row(l.ExpertUpBias, e, c.ExpertFFN)}
	})
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.site = site{raw: s.gate, cols: c.ExpertFFN, first: noTarget}
	s.input.resize(slots, c.ExpertFFN, false, l.downs...)
	s.parallel(groups(slots), slots*c.ExpertFFN*8, s.stages.prepare)
	s.mulExperts(func(e int) term {
		return term{m: l.downs[e], lo: s.share.dim.lo, hi: s.share.dim.hi, out: s.out, stride: c.Dim, bias: row(l.ExpertDownBias, e, c.Dim)}
	})
	if err := s.ex.sync(); err != nil {
		return err
	}
	s.parallel(n, slots*c.Dim*2, s.stages.combine)
	s.site = site{add: m.y, post: l.FFNPostNorm}
	return nil
}

func row(x []float32, i, n int) []float32 {
	if x == nil {
		return nil
	}
	return x[i*n:][:n]
}

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

func (s *step) route() {
	c, m, n := &s.conf, &s.mix, len(s.tokens)
	slots := n * c.ExpertsUsed
	m.chosen, m.weight = resize(m.chosen, slots), resize(m.weight, slots)
	m.slot, m.tokens, m.begin = resize(m.slot, slots), resize(m.tokens, slots), resize(m.begin, c.Experts+1)
	m.order = resize(m.order, n*c.Experts)
	s.parallel(n, n*c.Experts*c.ExpertsUsed*4, s.stages.route)
	clear(m.begin)
	for _, e := range m.chosen {
		m.begin[e+1]++
	}
	for e := range c.Experts {
		m.begin[e+1] += m.begin[e]
	}
	// begin[e] moves to the end of e's slots, where the next expert's begin.
	for i, e := range m.chosen {
		m.slot[i] = int32(m.begin[e])
		m.tokens[m.begin[e]] = i / c.ExpertsUsed
		m.begin[e]++
	}
	copy(m.begin[1:], m.begin[:c.Experts])
	m.begin[0] = 0
}

// routeChunk chooses a token's experts: the largest of the softmax over the router's scores, or of their sigmoids
// plus the layer's choice; of equals the first.
func (s *step) routeChunk(_, i int) {
	c, m, l := &s.conf, &s.mix, &s.weights.layers[s.at]
	p := m.scores[i*c.Experts:][:c.Experts]
	none, sum, order := float32(math.Inf(-1)), float32(1), p
	if c.ExpertSigmoid {
		for e, v := range p {
			p[e] = kernel.Sigmoid(v)
		}
	} else {
		top := none
		for _, v := range p {
			top = max(top, v)
		}
		sum = 0
		for e, v := range p {
			p[e] = kernel.Exp(v - top)
			sum += p[e]
		}
	}
	if l.Choice != nil {
		order = m.order[i*c.Experts:][:c.Experts]
		for e, v := range p {
			order[e] = v + l.Choice[e]
		}
	}
	chosen, weight := m.chosen[i*c.ExpertsUsed:][:c.ExpertsUsed], m.weight[i*c.ExpertsUsed:][:c.ExpertsUsed]
	var used float32
	for k := range chosen {
		best := -1
		for e, v := range order {
			if v > none && (best < 0 || v > order[best]) {
				best = e
			}
		}
		if best < 0 { // the rest is NaN, and so is the result
			best = k
			p[best] = float32(math.NaN())
		}
		chosen[k], weight[k] = int32(best), p[best]/sum
		used += weight[k]
		order[best] = none
	}
	for k := range weight {
		if c.ExpertNorm {
			weight[k] /= used
		}
		if c.ExpertScale != 0 {
			weight[k] *= c.ExpertScale
		}
		if l.ExpertWeights != nil {
			weight[k] *= l.ExpertWeights[chosen[k]]
		}
	}
}

// combineChunk sums a token's slots in the order of its experts, and the shared expert's output.
func (s *step) combineChunk(_, i int) {
	c, m, l := &s.conf, &s.mix, &s.weights.layers[s.at]
	y := m.y[i*c.Dim:][:c.Dim]
	if clear(y); c.SharedFFN > 0 && l.SharedPostNorm == nil {
		copy(y, m.shared[i*c.Dim:])
	}
	for k := i * c.ExpertsUsed; k < (i+1)*c.ExpertsUsed; k++ {
		kernel.Axpy(y, m.weight[k], s.out[int(m.slot[k])*c.Dim:][:c.Dim])
	}
	if l.SharedPostNorm != nil {
		shared := m.shared[i*c.Dim:][:c.Dim]
		kernel.RMSNorm(y, y, l.ExpertPostNorm, c.RMSEps)
		kernel.RMSNorm(shared, shared, l.SharedPostNorm, c.RMSEps)
		kernel.Add(y, shared)
	}
}
