package sample

import "math"

var negInf = float32(math.Inf(-1))

// candidate is a token with its weight: its probability but for a common factor.
type candidate struct {
	token  int32
	weight float64
}

// before is the order of candidates: heavier first; of equals, the lower token.
func (c candidate) before(d candidate) bool {
	return c.weight > d.weight || c.weight == d.weight && c.token < d.token
}

// draw picks a token at random (steps 6 and 7). top is the largest logit.
func (s *Sampler) draw(logits []float32, top float32) int32 {
	p := s.params
	s.left = s.left[:0]
	total := 0.0
	// A token below the floor has less than e⁻⁴⁰ of the first one's probability: a float64 sum does not notice it.
	floor := top - float32(40*p.Temperature)
	for t, l := range logits {
		if l < floor {
			continue
		}
		w := math.Exp((float64(l) - float64(top)) / p.Temperature) // 1 for the most probable; NaN stays NaN
		if w > 0 && w >= p.MinP {
			s.left = append(s.left, candidate{int32(t), w})
			total += w
		}
	}
	kept := s.left
	if p.TopK > 0 && p.TopK < len(kept) {
		kept, total = s.left.popK(p.TopK)
		if p.TopP > 0 && p.TopP < 1 {
			kept, total = cut(kept, p.TopP*total)
		}
	} else if p.TopP > 0 && p.TopP < 1 {
		kept, total = s.left.popMass(p.TopP * total)
	}
	x := s.rng.Float64() * total
	for _, c := range kept {
		if x -= c.weight; x < 0 {
			return c.token
		}
	}
	return kept[len(kept)-1].token // rounding left a crumb
}

// cut keeps the shortest head of sorted candidates whose weight reaches mass, at least one.
func cut(sorted []candidate, mass float64) (kept []candidate, total float64) {
	for i, c := range sorted {
		if total += c.weight; total >= mass {
			return sorted[:i+1], total
		}
	}
	return sorted, total
}

// heap is a binary heap with the first candidate (see before) at its root.
// Popping m of n costs n + m log n: a truncation that keeps a handful of tokens
// of a large vocabulary never sorts the rest.
type heap []candidate

func (h heap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// popK sorts the first k candidates to the end of h, in place, and returns them first one first.
func (h heap) popK(k int) (first []candidate, total float64) {
	return h.pop(func(n int, _ float64) bool { return n == k })
}

// popMass does the same for the fewest candidates whose weight reaches mass, at least one.
func (h heap) popMass(mass float64) (first []candidate, total float64) {
	return h.pop(func(_ int, sum float64) bool { return sum >= mass })
}

// pop moves candidates from the root to the end until enough says so or none is left.
func (h heap) pop(enough func(n int, sum float64) bool) (first []candidate, total float64) {
	h.init()
	rest := h
	for len(rest) > 0 {
		total += rest[0].weight
		last := len(rest) - 1
		rest[0], rest[last] = rest[last], rest[0]
		rest = rest[:last]
		rest.down(0)
		if enough(len(h)-last, total) {
			break
		}
	}
	first = h[len(rest):]
	for i, j := 0, len(first)-1; i < j; i, j = i+1, j-1 {
		first[i], first[j] = first[j], first[i]
	}
	return first, total
}

// argmax returns the lowest token with the largest logit, -1 if every logit is NaN or -Inf.
func argmax(logits []float32) int32 {
	best, token := negInf, int32(-1)
	for t, l := range logits {
		if l > best {
			best, token = l, int32(t)
		}
	}
	return token
}
