package sample

import (
	"cmp"
	"math"
	"slices"
)

var negInf = float32(math.Inf(-1))

// reach is how far below the best logit, in units of the temperature, a token may
// be and still be drawn: e⁻⁴⁰ is less than what a float64 sum of 1 and more notices.
const reach = 40

// candidate is a token with its weight: its probability but for a common factor, 1 for the best.
type candidate struct {
	token  int32
	weight float64
}

// before is the order of candidates: heavier first; of equals, the lower token.
func (c candidate) before(d candidate) bool {
	return c.weight > d.weight || c.weight == d.weight && c.token < d.token
}

func compare(c, d candidate) int {
	if order := cmp.Compare(d.weight, c.weight); order != 0 {
		return order
	}
	return cmp.Compare(c.token, d.token)
}

// scratch is memory that draws work in.
type scratch struct {
	left  []candidate
	sums  []float64
	bands [bands]float64
}

// keep keeps memory for the next draw, unless a flat distribution made it large: there may be hundreds of samplers.
func (s *scratch) keep(c []candidate) {
	if cap(c) <= 4096 {
		s.left = c
	}
}

// draw picks a token at random (steps 6 and 7): x, in [0, 1), is where. top is the largest allowed logit.
//
//  1. top-k: the k best are selected; their weights alone are computed.
//  2. top-p without top-k: the mass of bands of equal width tells how far down the best tokens go; only those are collected.
//  3. Neither: sums over ranges of tokens tell in which one the choice lies.
func (s *Sampler) draw(logits []float32, mask []uint64, top float32, x float64) int32 {
	d := distribution{
		logits: logits, mask: mask, top: float64(top), temperature: s.params.Temperature,
		floor: top - float32(reach*s.params.Temperature), minWeight: math.SmallestNonzeroFloat64,
	}
	if minP := s.params.MinP; minP > 0 {
		// A little lower, for rounding; weight decides.
		d.floor = max(d.floor, top+float32((math.Log(minP)-1e-3)*s.params.Temperature)-1e-3)
		d.minWeight = minP
	}
	cuts := s.params.TopP > 0 && s.params.TopP < 1
	switch k := s.params.TopK; {
	case k > 0 && k < len(logits): // 1
		kept := d.best(s.scratch.left[:0], k)
		s.scratch.keep(kept)
		if cuts {
			kept = head(kept, s.params.TopP*total(kept))
		}
		return pick(kept, x)
	case cuts: // 2
		kept := d.nucleus(&s.scratch, s.params.TopP)
		return pick(kept, x)
	}
	return d.pick(&s.scratch, x) // 3
}

func total(c []candidate) (sum float64) {
	for i := range c {
		sum += c[i].weight
	}
	return sum
}

// head keeps the shortest head of sorted candidates whose weight reaches mass, at least one.
func head(sorted []candidate, mass float64) []candidate {
	sum := 0.0
	for i, c := range sorted {
		if sum += c.weight; sum >= mass {
			return sorted[:i+1]
		}
	}
	return sorted
}

// pick returns the candidate at x, which is in [0, 1), when they lie side by side in the order of tokens.
func pick(c []candidate, x float64) int32 {
	slices.SortFunc(c, func(a, b candidate) int { return cmp.Compare(a.token, b.token) })
	left := x * total(c)
	for i := range c {
		if left -= c[i].weight; left < 0 {
			return c[i].token
		}
	}
	return c[len(c)-1].token // rounding left a crumb
}

// distribution is the tokens of one step with their weights.
type distribution struct {
	logits      []float32
	mask        []uint64
	top         float64
	temperature float64
	floor       float32 // lower logits do not count
	minWeight   float64 // nor do lower weights
}

// weight is the weight of a logit above the floor, 0 if it is too low.
func (d *distribution) weight(l float32) float64 {
	w := exp((float64(l) - d.top) / d.temperature)
	if w >= d.minWeight {
		return w
	}
	return 0
}

// allowed reports whether the mask holds a token.
func (d *distribution) allowed(t int) bool {
	return d.mask == nil || t>>6 < len(d.mask) && d.mask[t>>6]>>(t&63)&1 != 0
}

// best appends the k heaviest candidates to dst, heaviest first.
func (d *distribution) best(dst []candidate, k int) []candidate {
	h := heap(dst) // of logits, the last in order at the root
	for t, l := range d.logits {
		if !(l >= d.floor) || !d.allowed(t) {
			continue
		}
		c := candidate{int32(t), float64(l)}
		if len(h) < k {
			h = append(h, c)
			h.up(len(h) - 1)
		} else if c.before(h[0]) {
			h[0] = c
			h.down(0)
		}
	}
	slices.SortFunc(h, compare)
	for i := range h {
		if h[i].weight = d.weight(float32(h[i].weight)); h[i].weight == 0 {
			return h[:i]
		}
	}
	return h
}

const (
	bandsPerUnit = 8 // of the logarithm of the weight
	bands        = reach*bandsPerUnit + 2
)

func band(weightLog float64) int { return min(int(-weightLog*bandsPerUnit), bands-1) }

// nucleus returns the fewest of the heaviest candidates that have the share p of all weight, in any order.
func (d *distribution) nucleus(s *scratch, p float64) []candidate {
	s.bands = [bands]float64{}
	sum := 0.0
	for t, l := range d.logits {
		if l >= d.floor && d.allowed(t) {
			w := d.weight(l)
			s.bands[band((float64(l)-d.top)/d.temperature)] += w
			sum += w
		}
	}
	mass, last := p*sum, 0
	for mass > s.bands[last] && last < bands-1 {
		mass -= s.bands[last]
		last++
	}
	kept, edge := s.left[:0], []candidate(nil)
	for t, l := range d.logits {
		if !(l >= d.floor) || !d.allowed(t) {
			continue
		}
		switch w, b := d.weight(l), band((float64(l)-d.top)/d.temperature); {
		case w == 0 || b > last:
		case b < last:
			kept = append(kept, candidate{int32(t), w})
		default:
			edge = append(edge, candidate{int32(t), w})
		}
	}
	slices.SortFunc(edge, compare)
	kept = append(kept, head(edge, mass)...)
	s.keep(kept)
	return kept
}

// span is the number of tokens whose weights are summed together.
const span = 512

// pick returns the token at x, which is in [0, 1), when all lie side by side in their order.
func (d *distribution) pick(s *scratch, x float64) int32 {
	s.sums = s.sums[:0]
	all := 0.0
	for lo := 0; lo < len(d.logits); lo += span {
		sum := 0.0
		for t, l := range d.logits[lo:min(lo+span, len(d.logits))] {
			if l >= d.floor && d.allowed(lo+t) {
				sum += d.weight(l)
			}
		}
		s.sums = append(s.sums, sum)
		all += sum
	}
	left, last := x*all, int32(-1)
	for i, sum := range s.sums {
		if sum == 0 || left >= sum && i < len(s.sums)-1 {
			left -= sum
			continue
		}
		lo := i * span
		for t, l := range d.logits[lo:min(lo+span, len(d.logits))] {
			if !(l >= d.floor) || !d.allowed(lo+t) {
				continue
			}
			w := d.weight(l)
			if w > 0 {
				last = int32(lo + t)
			}
			if left -= w; left < 0 {
				return last
			}
		}
	}
	if last < 0 { // rounding left a crumb, and nothing behind it
		return argmax(d.logits, d.mask)
	}
	return last
}

// heap is a binary heap with the last of its candidates in order at the root.
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
