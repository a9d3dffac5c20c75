package cpu

import (
	"github.com/rouse-dev/rouse/engine/kernel"
)

// rotateChunk norms and rotates a token's queries and keys, and stores keys and values in the cache.
func (s *step) rotateChunk(_, i int) {
	c, t, l := &s.conf, &s.tokens[i], &s.weights.layers[s.at]
	d, own := l.headDim, s.share.heads(l)
	if l.gated {
		s.ungate(i, d)
	}
	cos, sin := s.ropes.angles(l.ropeKind, t.pos)
	turn := func(v, norm []float32) {
		if norm != nil {
			kernel.RMSNorm(v, v, norm, c.RMSEps)
		}
		kernel.Rope(v, cos, sin, c.RopeNeoX)
	}
	for j := own.lo * c.Heads / l.kvHeads; j < own.hi*c.Heads/l.kvHeads; j++ {
		turn(s.q[(i*c.Heads+j)*d:][:d], l.QNorm)
	}
	for j := own.lo; j < own.hi && l.k != nil; j++ {
		at := (i*l.kvHeads + j) * d
		key, value := s.k[at:][:d], s.v[at:][:d]
		if l.v == nil {
			copy(value, key)
		}
		if l.ones != nil {
			kernel.RMSNorm(value, value, l.ones, c.RMSEps)
		}
		turn(key, l.KNorm)
		p := s.cache.pages(s.at, j-own.lo, s.runs[t.run].blocks)
		p.StoreKey(t.pos, key)
		p.StoreValue(t.pos, value)
	}
}

// attendPlan divides a layer's attention into units, and these into spans if they are too few.
type attendPlan struct {
	units  []unit
	window int
	spans  []spanJob
	parts  []float32
}

// unit is the queries of one kv head for adjacent tokens of a run.
type unit struct {
	kv          int // head
	lo, hi      int // tokens
	first, last int // spans
	parts       int // where its parts begin, when it is cut: [spans, queries, PartSize]
}

type spanJob struct{ unit, span int }

const (
	// together queries are computed at once most efficiently.
	together = 8
	most     = 64 // queries in a unit
)

// attention computes softmax(q·Kᵀ)·V to att.
func (s *step) attention(l *layer) {
	cost := s.planAttention(l)
	p := &s.attends
	if cost < worthwhile || s.team.size == 1 || len(p.units) >= 2*s.team.size || !s.cutUnits() {
		s.parallel(len(p.units), cost, s.stages.attend)
		return
	}
	s.parallel(len(p.spans), cost, s.stages.parts)
	s.parallel(len(p.units), 0, s.stages.merge)
}

// planAttention returns the units' cost in multiplications.
func (s *step) planAttention(l *layer) (cost int) {
	c, p, own := &s.conf, &s.attends, s.share.heads(l)
	p.units, p.window = p.units[:0], l.window
	perHead := c.Heads / l.kvHeads
	least, heads := max(1, together/perHead), own.hi-own.lo
	for i := range s.runs {
		r := &s.runs[i]
		step := max(least, min(most/perHead, len(s.tokens)*heads/(8*s.team.size))/least*least)
		for lo := r.first; lo < r.first+r.n; lo += step {
			u := unit{lo: lo, hi: min(r.first+r.n, lo+step)}
			from, to := s.sees(u.lo), s.tokens[u.hi-1].to
			u.first, u.last = from/kernel.Span, (to+kernel.Span-1)/kernel.Span
			cost += 2 * (to - from) * (u.hi - u.lo) * heads * perHead * l.headDim
			for u.kv = own.lo; u.kv < own.hi; u.kv++ {
				p.units = append(p.units, u)
			}
		}
	}
	return cost
}

func (s *step) sees(i int) int {
	if s.attends.window == 0 {
		return 0
	}
	return max(0, s.tokens[i].pos+1-s.attends.window)
}

// cutUnits returns false if each unit has only one span.
func (s *step) cutUnits() bool {
	p := &s.attends
	p.spans = p.spans[:0]
	l := &s.weights.layers[s.at]
	n, size := 0, kernel.PartSize(l.headDim)
	for i := range p.units {
		u := &p.units[i]
		u.parts = n
		n += (u.last - u.first) * (u.hi - u.lo) * (s.conf.Heads / l.kvHeads) * size
		for span := u.first; span < u.last; span++ {
			p.spans = append(p.spans, spanJob{i, span})
		}
	}
	p.parts = resize(p.parts, n)
	return len(p.spans) > len(p.units)
}

func (s *step) queries(member int, u *unit) ([]kernel.Query, kernel.Pages) {
	c, w, l := &s.conf, &s.members[member], &s.weights.layers[s.at]
	perHead, d := c.Heads/l.kvHeads, l.headDim
	w.queries = w.queries[:0]
	for i := u.lo; i < u.hi; i++ {
		from, to := s.sees(i), s.tokens[i].to
		for h := u.kv * perHead; h < (u.kv+1)*perHead; h++ {
			at := (i*c.Heads + h) * d
			q := kernel.Query{Q: s.q[at : at+d], Out: s.att[at : at+d], From: from, To: to}
			if l.Sinks != nil {
				q.Sink = &l.Sinks[h]
			}
			w.queries = append(w.queries, q)
		}
	}
	return w.queries, s.cache.pages(l.source, u.kv-s.share.heads(l).lo, s.runs[s.tokens[u.lo].run].blocks)
}

// Many queries go span by span, so that keys and values stay in the CPU cache.
func (s *step) attendChunk(member, chunk int) {
	u, w := &s.attends.units[chunk], &s.members[member]
	q, pages := s.queries(member, u)
	if len(q) <= together {
		w.attend.Run(&pages, q)
		return
	}
	size := kernel.PartSize(s.weights.layers[s.at].headDim)
	n := len(q) * size
	w.parts = resize(w.parts, (u.last-u.first)*n)
	for span := u.first; span < u.last; span++ {
		w.attend.Part(w.parts[(span-u.first)*n:][:n], &pages, q, span)
	}
	for i := range q {
		q[i].Merge(w.parts[i*size:], n, u.last-u.first)
	}
}

func (s *step) partsChunk(member, chunk int) {
	p := &s.attends
	j := p.spans[chunk]
	u := &p.units[j.unit]
	q, pages := s.queries(member, u)
	size := len(q) * kernel.PartSize(s.weights.layers[s.at].headDim)
	s.members[member].attend.Part(p.parts[u.parts+(j.span-u.first)*size:][:size], &pages, q, j.span)
}

func (s *step) mergeChunk(member, chunk int) {
	p := &s.attends
	u := &p.units[chunk]
	q, _ := s.queries(member, u)
	size := kernel.PartSize(s.weights.layers[s.at].headDim)
	for i := range q {
		q[i].Merge(p.parts[u.parts+i*size:], len(q)*size, u.last-u.first)
	}
}
