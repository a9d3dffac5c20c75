package kernel

import (
	"math"

	"github.com/rouse-dev/rouse/engine/gguf"
)

const (
	// Block is the positions in a block of the cache.
	Block = 16
	// Span is the positions that one call of Part covers, from a multiple of Span on.
	Span = 256
	// together queries share one reading of keys and values.
	together = 8
)

// Pages describes the keys and values of one kv head in one layer of a paged cache of IEEE halves. Block b has
// transposed keys, [HeadDim][Block], at Memory[Keys+b·Stride:], and values, [Block][HeadDim], at
// Memory[Values+b·Stride:].
type Pages struct {
	Memory       []uint16
	Keys, Values int
	Stride       int     // from a block to the next
	Blocks       []int32 // of the sequence: Blocks[p/Block] holds position p
	HeadDim      int
}

// StoreKey writes the key of one position into its block.
func (p *Pages) StoreKey(pos int, key []float32) {
	at := p.Keys + int(p.Blocks[pos/Block])*p.Stride + pos%Block
	block := p.Memory[at : at+(p.HeadDim-1)*Block+1]
	var halves [64]uint16
	for key = key[:p.HeadDim]; len(key) > 0; {
		n := min(len(key), len(halves))
		NarrowF16(halves[:n], key[:n])
		for i, h := range halves[:n] {
			block[i*Block] = h
		}
		key = key[n:]
		block = block[min(n*Block, len(block)):]
	}
}

// StoreValue writes the value of one position into its block.
func (p *Pages) StoreValue(pos int, value []float32) {
	at := p.Values + int(p.Blocks[pos/Block])*p.Stride + pos%Block*p.HeadDim
	NarrowF16(p.Memory[at:at+p.HeadDim], value[:p.HeadDim])
}

// Query is one head of one token. It sees the positions From ≤ p < To.
type Query struct {
	Q, Out   []float32 // [HeadDim]
	Sink     *float32  // a score that joins the softmax and has no value; may be nil
	From, To int
}

// Attention computes softmax(Scale · q·Kᵀ)·V for queries that share a kv head. With Softcap c above 0 a product s
// becomes c·tanh(s/c). It holds the memory of one goroutine.
//
// The part of a span is the largest score, the sum of e^(score-largest), and the values weighted so. Parts are merged
// in order, so the bits do not depend on grouping or threads. Calls of Part, on any goroutine, and one Merge per
// query are equivalent to Run.
type Attention struct {
	Scale, Softcap float32

	q, acc []float32 // [together, HeadDim] queries times Scale, weighted values
	scores [together * Span]float32
	parts  []float32 // of Run: [spans, together, PartSize]
}

// PartSize returns the length of a part: the weighted values, the largest score, the sum.
func PartSize(headDim int) int { return headDim + 2 }

// Run writes each query's result to its Out. Neighbours should see about the same positions.
func (a *Attention) Run(p *Pages, queries []Query) {
	size := PartSize(p.HeadDim)
	for len(queries) > 0 {
		n := min(len(queries), together)
		first, last := Spans(queries[:n])
		a.parts = grow(a.parts, max(0, last-first)*n*size)
		for s := first; s < last; s++ {
			a.group(a.parts[(s-first)*n*size:], p, queries[:n], s)
		}
		for i := range n {
			queries[i].Merge(a.parts[min(i*size, len(a.parts)):], n*size, last-first)
		}
		queries = queries[n:]
	}
}

// Spans returns the spans, first ≤ s < last, of the positions that the queries see.
func Spans(queries []Query) (first, last int) {
	first = math.MaxInt
	for i := range queries {
		if q := &queries[i]; q.From < q.To {
			first = min(first, q.From/Span)
			last = max(last, (q.To+Span-1)/Span)
		}
	}
	return min(first, last), last
}

// Part writes each query's part of one span to parts, [len(queries), PartSize].
func (a *Attention) Part(parts []float32, p *Pages, queries []Query, span int) {
	size := PartSize(p.HeadDim)
	for len(queries) > 0 {
		n := min(len(queries), together)
		a.group(parts, p, queries[:n], span)
		parts, queries = parts[n*size:], queries[n:]
	}
}

// Merge joins the query's n parts into Out, in the order of their spans: the first is at parts[0], each next one
// stride further on. A query that sees no position gets zeros.
func (q *Query) Merge(parts []float32, stride, n int) {
	out, d := q.Out, len(q.Out)
	top := float32(math.Inf(-1))
	if q.Sink != nil {
		top = *q.Sink
	}
	for i := range n {
		if p := parts[i*stride:]; p[d+1] != 0 {
			top = larger(p[d], top)
		}
	}
	clear(out)
	var sum float32
	for i := range n {
		p := parts[i*stride:][:d+2]
		if p[d+1] == 0 {
			continue // sees nothing of this span
		}
		w := Exp(p[d] - top)
		sum = fma(w, p[d+1], sum)
		Axpy(out, w, p[:d])
	}
	if q.Sink != nil {
		sum += Exp(*q.Sink - top)
	}
	if sum != 0 {
		Scale(out, 1/sum)
	}
}

func (a *Attention) group(parts []float32, p *Pages, queries []Query, span int) {
	d, size := p.HeadDim, PartSize(p.HeadDim)
	a.load(queries, d)
	var sees [together]window
	all := window{Span, 0}
	for i := range queries {
		q := &queries[i]
		w := window{max(q.From-span*Span, 0), min(q.To-span*Span, Span)}
		if w.lo >= w.hi {
			continue
		}
		sees[i] = w
		all.lo, all.hi = min(all.lo, w.lo), max(all.hi, w.hi)
	}
	if all.lo >= all.hi {
		clear(parts[:len(queries)*size])
		return
	}
	lo, hi := all.lo/Block, (all.hi+Block-1)/Block // in blocks
	v := view{Pages: p, blocks: p.Blocks[span*(Span/Block):][lo:hi]}
	v.check()
	v.scores(a.scores[lo*Block:], a.q, len(queries))
	for i := range queries {
		part := parts[i*size:][:size]
		sees[i] = window{max(sees[i].lo-lo*Block, 0), max(sees[i].hi-lo*Block, 0)}
		part[d], part[d+1] = a.weigh(a.scores[i*Span:][lo*Block:hi*Block], sees[i])
	}
	v.mix(a.acc, a.scores[lo*Block:], sees[:len(queries)])
	for i := range queries {
		copy(parts[i*size:][:d], a.acc[i*d:])
	}
}

// load copies the queries, padded with zeros to together queries.
func (a *Attention) load(queries []Query, d int) {
	a.q, a.acc = grow(a.q, together*d), grow(a.acc, together*d)
	clear(a.acc)
	clear(a.q[len(queries)*d:])
	for i := range queries {
		q := a.q[i*d:][:d]
		copy(q, queries[i].Q[:d])
		Scale(q, a.Scale)
	}
}

type window struct{ lo, hi int } // lo ≤ position < hi

// weigh turns scores into weights e^(score-largest), 0 where the query does not see, and returns the largest score
// and the weights' sum.
func (a *Attention) weigh(s []float32, sees window) (top, sum float32) {
	if sees.lo >= sees.hi {
		clear(s)
		return 0, 0
	}
	if a.Softcap > 0 {
		Softcap(s, a.Softcap)
	}
	low := float32(math.Inf(-1))
	for i := range s[:sees.lo] {
		s[i] = low
	}
	for i := range s[sees.hi:] {
		s[sees.hi+i] = low
	}
	top = maximum(s)
	return top, ExpSum(s, top)
}

type view struct {
	*Pages
	blocks []int32
}

// check panics unless the blocks are within the cache: vector code does not check.
func (v *view) check() {
	size := v.HeadDim * Block
	for _, b := range v.blocks {
		at := int(b) * v.Stride
		_, _ = v.Memory[at+v.Keys:][:size], v.Memory[at+v.Values:][:size]
	}
}

// scores writes the products of n queries, [n, HeadDim], with the keys to dst. Rows of dst are Span apart.
func (v *view) scores(dst, q []float32, n int) {
	if v.scoresVector(dst, q, n) {
		return
	}
	d := v.HeadDim
	for i := range n {
		for j, b := range v.blocks {
			at := v.Keys + int(b)*v.Stride
			scoresBlock((*[Block]float32)(dst[i*Span+j*Block:]), q[i*d:i*d+d], v.Memory[at:at+d*Block])
		}
	}
}

// scoresBlock sums each product in two halves, each in order; an odd dimension comes last.
func scoresBlock(dst *[Block]float32, q []float32, keys []uint16) {
	n := len(q) / 2
	var sums [2][Block]float32
	for i := range sums {
		for j := i * n; j < i*n+n; j++ {
			for l, k := range keys[j*Block:][:Block] {
				sums[i][l] = fma(q[j], gguf.F16ToF32(k), sums[i][l])
			}
		}
	}
	for l := range dst {
		dst[l] = sums[0][l] + sums[1][l]
		for j := 2 * n; j < len(q); j++ {
			dst[l] = fma(q[j], gguf.F16ToF32(keys[j*Block+l]), dst[l])
		}
	}
}

// mix adds to each query's row of acc the values that it sees, times their weights, in order.
// Rows of weights are Span apart.
func (v *view) mix(acc, weights []float32, sees []window) {
	if v.mixVector(acc, weights, sees) {
		return
	}
	d := v.HeadDim
	for i, w := range sees {
		for pos := w.lo; pos < w.hi; pos++ {
			at := v.Values + int(v.blocks[pos/Block])*v.Stride + pos%Block*d
			row, weight := acc[i*d:i*d+d], weights[i*Span+pos]
			for j, h := range v.Memory[at : at+d] {
				row[j] = fma(weight, gguf.F16ToF32(h), row[j])
			}
		}
	}
}
