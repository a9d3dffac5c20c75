package cpu

import (
	"math"

	"github.com/rouse-dev/rouse/engine/kernel"
)

// rotateChunk turns one token's queries and keys by its position's angles and stores
// keys and values in the cache.
func (s *step) rotateChunk(_, i int) {
	c, t := &s.conf, &s.tokens[i]
	h, d := c.RopeDim/2, c.HeadDim
	cos, sin := s.cos[i*h:][:h], s.sin[i*h:][:h]
	q := s.q[i*c.Heads*d:]
	for j := range c.Heads {
		kernel.Rope(q[j*d:][:d], cos, sin, c.RopeNeoX)
	}
	block, at := t.blocks[t.pos/s.cache.size], t.pos%s.cache.size*d
	k, v := s.k[i*c.KVHeads*d:], s.v[i*c.KVHeads*d:]
	for j := range c.KVHeads {
		kernel.Rope(k[j*d:][:d], cos, sin, c.RopeNeoX)
		keys, values := s.cache.head(block, s.layer, j)
		copy(keys[at:at+d], k[j*d:])
		copy(values[at:at+d], v[j*d:])
	}
}

// attentionCost is the number of multiplications of one layer's attention.
func (s *step) attentionCost() int {
	n := 0
	for i := range s.tokens {
		n += s.tokens[i].pos + 1
	}
	return n * s.conf.Heads * s.conf.HeadDim * 2
}

// attendChunk computes one head of one token: softmax(q·Kᵀ/√d)·V over the positions up to
// its own, in order. The result goes to y, [T, Heads·HeadDim].
func (s *step) attendChunk(member, chunk int) {
	c := &s.conf
	i, head := chunk/c.Heads, chunk%c.Heads
	t, d, size := &s.tokens[i], c.HeadDim, s.cache.size
	kvHead := head / (c.Heads / c.KVHeads)
	at := (i*c.Heads + head) * d
	q, out := s.q[at:][:d], s.y[at:][:d]
	n := t.pos + 1
	w := &s.members[member]
	if cap(w.scores) < n {
		w.scores = make([]float32, n+n/2)
	}
	scores := w.scores[:n]
	for b := 0; b*size < n; b++ {
		keys, _ := s.cache.head(t.blocks[b], s.layer, kvHead)
		score(scores[b*size:min(n, b*size+size)], q, keys)
	}
	kernel.Softmax(scores, float32(1/math.Sqrt(float64(d))))
	clear(out)
	for b := 0; b*size < n; b++ {
		_, values := s.cache.head(t.blocks[b], s.layer, kvHead)
		gather(out, scores[b*size:min(n, b*size+size)], values)
	}
}

// score writes the products of q with the first len(dst) rows of keys.
func score(dst, q, keys []float32) {
	d, j := len(q), 0
	row := func(j int) []float32 { return keys[j*d : j*d+d] }
	for ; j+4 <= len(dst); j += 4 {
		dst[j], dst[j+1], dst[j+2], dst[j+3] = kernel.Dot4(q, row(j), row(j+1), row(j+2), row(j+3))
	}
	for ; j < len(dst); j++ {
		dst[j] = kernel.Dot(q, row(j))
	}
}

// gather adds the first len(weights) rows of values to out, each times its weight.
func gather(out, weights, values []float32) {
	d, j := len(out), 0
	row := func(j int) []float32 { return values[j*d : j*d+d] }
	for ; j+4 <= len(weights); j += 4 {
		kernel.Axpy4(out, (*[4]float32)(weights[j:]), row(j), row(j+1), row(j+2), row(j+3))
	}
	for ; j < len(weights); j++ {
		kernel.Axpy(out, weights[j], row(j))
	}
}
