package sample

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/rouse-dev/rouse/engine/kernel"
)

var negInf = float32(math.Inf(-1))

// reach is how many temperatures below the best logit a token can be drawn: e⁻⁴⁰ is lost in rounding.
const reach = 40

// A candidate's weight is 1 for the best.
type candidate struct {
	token  int32
	weight float64
}

// before orders by weight, then by token.
func (c candidate) before(d candidate) bool {
	return c.weight > d.weight || c.weight == d.weight && c.token < d.token
}

func compare(c, d candidate) int {
	if order := cmp.Compare(d.weight, c.weight); order != 0 {
		return order
	}
	return cmp.Compare(c.token, d.token)
}

// draw picks a token (steps 6 and 7) by the uniform number x in [0, 1). top is the largest allowed logit.
//
//  1. top-k: only the k best are weighed.
//  2. top-p alone: sums over bands of weights tell how far down the nucleus reaches; only that band is sorted.
//  3. Neither: sums over ranges of tokens tell the choice's range.
func (s *Sampler) draw(logits []float32, mask []uint64, top float32, x float64) int32 {
	d := distributions.Get().(*distribution)
	defer distributions.Put(d)
	p := &s.params
	d.logits, d.mask, d.top, d.temperature = logits, mask, top, p.Temperature
	d.floor = top - float32(reach*p.Temperature)
	if p.MinP > 0 {
		d.floor = max(d.floor, top+float32(math.Log(p.MinP)*p.Temperature))
	}
	cuts := p.TopP > 0 && p.TopP < 1
	switch k := p.TopK; {
	case k > 0 && k < len(logits): // 1
		kept := d.best(k)
		if cuts {
			kept = head(kept, p.TopP*total(kept))
		}
		return pick(kept, x)
	case cuts: // 2
		return d.pickFrom(d.nucleus(p.TopP), x)
	}
	return d.pick(x) // 3
}

func total(c []candidate) (sum float64) {
	for i := range c {
		sum += c[i].weight
	}
	return sum
}

// head returns the shortest prefix, at least one, of that mass.
func head(sorted []candidate, mass float64) []candidate {
	sum := 0.0
	for i, c := range sorted {
		if sum += c.weight; sum >= mass {
			return sorted[:i+1]
		}
	}
	return sorted
}

// pick returns the candidate at x of the cumulative distribution, by token.
func pick(c []candidate, x float64) int32 {
	slices.SortFunc(c, func(a, b candidate) int { return cmp.Compare(a.token, b.token) })
	left := x * total(c)
	for i := range c {
		if left -= c[i].weight; left < 0 {
			return c[i].token
		}
	}
	return c[len(c)-1].token // rounding error
}

// distribution is one step's logits, and scratch memory.
type distribution struct {
	logits      []float32
	mask        []uint64
	top         float32
	temperature float64
	floor       float32 // lower logits are ignored

	weights []float32 // 0 for ignored tokens
	sums    []float64 // of each span
	left    []candidate
}

// Of hundreds of samplers few draw at once.
var distributions = sync.Pool{New: func() any { return new(distribution) }}

func (d *distribution) allowed(t int) bool {
	return d.mask == nil || t>>6 < len(d.mask) && d.mask[t>>6]>>(t&63)&1 != 0
}

// best returns the heaviest first.
func (d *distribution) best(k int) []candidate {
	h := heap(d.left[:0]) // by logit, the worst at the root
	worst := d.floor      // least logit that can be among them
	for t, l := range d.logits {
		if !(l >= worst) || !d.allowed(t) {
			continue
		}
		c := candidate{int32(t), float64(l)}
		switch {
		case len(h) < k:
			h = append(h, c)
			h.up(len(h) - 1)
		case c.before(h[0]):
			h[0] = c
			h.down(0)
		}
		if len(h) == k {
			worst = float32(h[0].weight)
		}
	}
	slices.SortFunc(h, compare)
	for i := range h {
		h[i].weight = math.Exp((h[i].weight - float64(d.top)) / d.temperature)
	}
	d.left = h
	return h
}

// span is in tokens.
const span = 512

func (d *distribution) weigh() (sum float64) {
	n := len(d.logits)
	if cap(d.weights) < n {
		d.weights = make([]float32, n)
	}
	d.weights, d.sums = d.weights[:n], d.sums[:0]
	scale := float32(1 / d.temperature)
	for lo := 0; lo < n; lo += span {
		hi := min(lo+span, n)
		to := d.weights[lo:hi]
		for i, l := range d.logits[lo:hi] {
			to[i] = negInf
			if l >= d.floor {
				to[i] = (l - d.top) * scale
			}
		}
		if d.mask != nil {
			for i := range to {
				if !d.allowed(lo + i) {
					to[i] = negInf
				}
			}
		}
		s := float64(kernel.ExpSum(to, 0))
		d.sums = append(d.sums, s)
		sum += s
	}
	return sum
}

const (
	bandShift = 20                             // a band is the bits above these, an eighth of an octave of weights
	bands     = 0x3F800000>>bandShift + 1      // up to 1
	fewBands  = (127 - 12) << (23 - bandShift) // the first attempt's lowest, 2⁻¹²
)

// nucleus returns the last of the heaviest candidates with the share p of all weight.
func (d *distribution) nucleus(p float64) candidate {
	mass := p * d.weigh()
	var of [bands]float64
	last := -1
	// Most of the mass is in few tokens.
	for _, lowest := range []int{fewBands, 0} {
		if last = d.band(&of, mass, lowest); last >= 0 {
			break
		}
	}
	if last < 0 { // rounding error: all
		return candidate{math.MaxInt32, math.SmallestNonzeroFloat32}
	}
	for b := last + 1; b < bands; b++ {
		mass -= of[b]
	}
	from, to := math.Float32frombits(uint32(last)<<bandShift), math.Float32frombits(uint32(last+1)<<bandShift)
	edge := d.left[:0]
	for t, w := range d.weights {
		if w >= from && w < to && w > 0 {
			edge = append(edge, candidate{int32(t), float64(w)})
		}
	}
	d.left = edge
	slices.SortFunc(edge, compare)
	edge = head(edge, mass)
	return edge[len(edge)-1]
}

// pickFrom is pick for the tokens up to last.
func (d *distribution) pickFrom(last candidate, x float64) int32 {
	least := float32(last.weight)
	sum := 0.0
	for t, w := range d.weights {
		if w >= least && (w > least || int32(t) <= last.token) {
			sum += float64(w)
		}
	}
	left, token := x*sum, last.token
	for t, w := range d.weights {
		if w >= least && (w > least || int32(t) <= last.token) {
			token = int32(t)
			if left -= float64(w); left < 0 {
				break
			}
		}
	}
	return token
}

// band returns the band in which the heaviest tokens reach mass, or -1 if that is below lowest.
func (d *distribution) band(of *[bands]float64, mass float64, lowest int) int {
	*of = [bands]float64{}
	from := math.Float32frombits(uint32(lowest) << bandShift)
	for _, w := range d.weights {
		if w >= from && w > 0 {
			of[min(math.Float32bits(w)>>bandShift, bands-1)] += float64(w)
		}
	}
	for b := bands - 1; b >= lowest; b-- {
		if mass -= of[b]; mass <= 0 {
			return b
		}
	}
	return -1
}

func (d *distribution) pick(x float64) int32 {
	left, last := x*d.weigh(), int32(-1)
	for i, sum := range d.sums {
		if sum == 0 || left >= sum && i < len(d.sums)-1 {
			left -= sum
			continue
		}
		lo := i * span
		for t, w := range d.weights[lo:min(lo+span, len(d.weights))] {
			if w > 0 {
				last = int32(lo + t)
			}
			if left -= float64(w); left < 0 && last >= 0 {
				return last
			}
		}
	}
	if last < 0 { // rounding error, and no later token has weight
		return argmax(d.logits, d.mask)
	}
	return last
}

// heap has the worst candidate at its root.
type heap []candidate

func (h heap) up(i int) {
	for i > 0 && h[(i-1)/2].before(h[i]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
}

func (h heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child].before(h[child+1]) {
			child++
		}
		if !h[i].before(h[child]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
