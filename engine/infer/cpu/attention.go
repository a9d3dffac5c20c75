package cpu

import (
	"github.com/rouse-dev/rouse/engine/kernel"
)

// rotateChunk norms one token's queries and keys, rotates them by its position and stores keys and values in the
// cache, for the rank's own heads.
func (s *step) rotateChunk(_, i int) {
	c, t, l := &s.conf, &s.tokens[i], &s.weights.layers[s.at]
	d := c.HeadDim
	cos, sin := s.ropes.angles(l.ropeKind, t.pos)
	turn := func(v, norm []float32) {
		if norm != nil {
			kernel.RMSNorm(v, v, norm, c.RMSEps)
		}
		kernel.Rope(v, cos, sin, c.RopeNeoX)
	}
	for j := s.share.kvHeads.lo * c.Heads / c.KVHeads; j < s.share.kvHeads.hi*c.Heads/c.KVHeads; j++ {
		turn(s.q[(i*c.Heads+j)*d:][:d], l.qNorm)
	}
	for j := s.share.kvHeads.lo; j < s.share.kvHeads.hi; j++ {
		at := (i*c.KVHeads + j) * d
		turn(s.k[at:][:d], l.kNorm)
		p := s.cache.pages(s.at, j-s.share.kvHeads.lo, s.runs[t.run].blocks)
		p.StoreKey(t.pos, s.k[at:][:d])
		p.StoreValue(t.pos, s.v[at:][:d])
	}
}

// attendPlan is the division of a layer's attention into units, and of these into spans if there are too few units.
type attendPlan struct {
	units  []unit
	window int
	spans  []spanJob // when units are cut
	parts  []float32 // results of spans
}

// unit is the queries of one kv head for adjacent tokens of a run.
type unit struct {
	kv          int // head
	lo, hi      int // tokens
	first, last int // spans
	parts       int // where its parts begin, when it is cut: [spans, queries, PartSize]
}

// spanJob is one span of a unit.
type spanJob struct{ unit, span int }

const (
	// together is the number of queries that the kernels compute at once most efficiently.
	together = 8
	// most is the most queries in a unit.
	most = 64
)

// attention computes softmax(q·Kᵀ)·V of the rank's own heads for all tokens, to att.
func (s *step) attention(l *layer) {
	cost := s.planAttention(l.window)
	p := &s.attends
	if cost < worthwhile || s.team.size == 1 || len(p.units) >= 2*s.team.size || !s.cutUnits() {
		s.parallel(len(p.units), cost, s.stages.attend)
		return
	}
	s.parallel(len(p.spans), cost, s.stages.parts)
	s.parallel(len(p.units), 0, s.stages.merge)
}

// planAttention makes the units and returns their cost in multiplications.
func (s *step) planAttention(window int) (cost int) {
	c, p := &s.conf, &s.attends
	p.units, p.window = p.units[:0], window
	perHead := c.Heads / c.KVHeads
	least, heads := max(1, together/perHead), s.share.kvHeads.hi-s.share.kvHeads.lo
	for i := range s.runs {
		r := &s.runs[i]
		step := max(least, min(most/perHead, len(s.tokens)*heads/(8*s.team.size))/least*least)
		for lo := r.first; lo < r.first+r.n; lo += step {
			u := unit{lo: lo, hi: min(r.first+r.n, lo+step)}
			from, to := s.sees(u.lo), s.tokens[u.hi-1].to
			u.first, u.last = from/kernel.Span, (to+kernel.Span-1)/kernel.Span
			cost += 2 * (to - from) * (u.hi - u.lo) * heads * perHead * c.HeadDim
			for u.kv = s.share.kvHeads.lo; u.kv < s.share.kvHeads.hi; u.kv++ {
				p.units = append(p.units, u)
			}
		}
	}
	return cost
}

// sees returns the first position that a token sees.
func (s *step) sees(i int) int {
	if s.attends.window == 0 {
		return 0
	}
	return max(0, s.tokens[i].pos+1-s.attends.window)
}

// cutUnits divides the units into spans. It returns false if each has only one.
func (s *step) cutUnits() bool {
	p := &s.attends
	p.spans = p.spans[:0]
	n, size := 0, kernel.PartSize(s.conf.HeadDim)
	for i := range p.units {
		u := &p.units[i]
		u.parts = n
		n += (u.last - u.first) * (u.hi - u.lo) * (s.conf.Heads / s.conf.KVHeads) * size
		for span := u.first; span < u.last; span++ {
			p.spans = append(p.spans, spanJob{i, span})
		}
	}
	p.parts = resize(p.parts, n)
	return len(p.spans) > len(p.units)
}

// queries returns the queries of a unit.
func (s *step) queries(member int, u *unit) ([]kernel.Query, kernel.Pages) {
	c, w := &s.conf, &s.members[member]
	perHead, d, sinks := c.Heads/c.KVHeads, c.HeadDim, s.weights.layers[s.at].sinks
	w.queries = w.queries[:0]
	for i := u.lo; i < u.hi; i++ {
		from, to := s.sees(i), s.tokens[i].to
		for h := u.kv * perHead; h < (u.kv+1)*perHead; h++ {
			at := (i*c.Heads + h) * d
			q := kernel.Query{Q: s.q[at : at+d], Out: s.att[at : at+d], From: from, To: to}
			if sinks != nil {
				q.Sink = &sinks[h]
			}
			w.queries = append(w.queries, q)
		}
	}
	return w.queries, s.cache.pages(s.at, u.kv-s.share.kvHeads.lo, s.runs[s.tokens[u.lo].run].blocks)
}

// attendChunk computes a unit. If it has many queries it works span by span, so that keys and values stay in the CPU
// cache for all of them.
func (s *step) attendChunk(member, chunk int) {
	u, w := &s.attends.units[chunk], &s.members[member]
	q, pages := s.queries(member, u)
	if len(q) <= together {
		w.attend.Run(&pages, q)
		return
	}
	size := kernel.PartSize(s.conf.HeadDim)
	n := len(q) * size
	w.parts = resize(w.parts, (u.last-u.first)*n)
	for span := u.first; span < u.last; span++ {
		w.attend.Part(w.parts[(span-u.first)*n:][:n], &pages, q, span)
	}
	for i := range q {
		q[i].Merge(w.parts[i*size:], n, u.last-u.first)
	}
}

// partsChunk computes one span of a unit.
func (s *step) partsChunk(member, chunk int) {
	p := &s.attends
	j := p.spans[chunk]
	u := &p.units[j.unit]
	q, pages := s.queries(member, u)
	size := len(q) * kernel.PartSize(s.conf.HeadDim)
	s.members[member].attend.Part(p.parts[u.parts+(j.span-u.first)*size:][:size], &pages, q, j.span)
}

// mergeChunk merges a unit's parts.
func (s *step) mergeChunk(member, chunk int) {
	p := &s.attends
	u := &p.units[chunk]
	q, _ := s.queries(member, u)
	size := kernel.PartSize(s.conf.HeadDim)
	for i := range q {
		q[i].Merge(p.parts[u.parts+i*size:], len(q)*size, u.last-u.first)
	}
}
