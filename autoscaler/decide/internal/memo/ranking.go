package memo

import (
	"slices"
	"sort"
)

// ranking holds the best of the places that all cells offer to one question.
type ranking[P any] struct {
	asked Cells // the cells when they were asked; empty: never
	// best are the best places, in order. Unless they are all, no other place comes before limit.
	best  []P
	all   bool
	limit P
}

func (r *ranking[P]) forget() { r.asked.prints = r.asked.prints[:0] }

// few is the number of changed cells that are always asked again one by one.
const few = 8

// refresh updates r, and reports whether any cell has changed.
func (m *Memo[K, V, P, A]) refresh(r *ranking[P], q Question[P, A]) bool {
	if len(r.asked.prints) == 0 {
		m.rank(r, q)
		return true
	}
	m.changed = m.update(&r.asked, m.changed[:0])
	switch {
	case len(m.changed) == 0:
		return false
	case len(m.changed) > few+len(m.prints)/8:
		m.rank(r, q)
		return true
	}
	add := func(place *P) {
		if r.all || m.places.Compare(place, &r.limit) < 0 {
			m.insert(r, place)
		}
	}
	for _, k := range m.changed {
		rest := r.best[:0]
		for j := range r.best {
			if m.places.Cell(&r.best[j]) != k {
				rest = append(rest, r.best[j])
			}
		}
		r.best = rest
		q.Offer(k, add)
	}
	switch most := m.places.Most; {
	case r.all:
	case len(r.best) < most/2:
		m.rank(r, q)
	case len(r.best) > 2*most:
		r.best, r.limit = r.best[:most], r.best[most-1]
	}
	return true
}

// rank asks all cells.
func (m *Memo[K, V, P, A]) rank(r *ranking[P], q Question[P, A]) {
	m.copyTo(&r.asked)
	r.best, r.all = r.best[:0], true
	most := m.places.Most
	add := func(place *P) {
		if most > 0 && len(r.best) == most {
			if r.all = false; m.places.Compare(place, &r.best[most-1]) >= 0 {
				return
			}
			r.best = r.best[:most-1]
		}
		m.insert(r, place)
	}
	for k := range m.prints {
		q.Offer(int32(k), add)
	}
	if !r.all {
		r.limit = r.best[most-1]
	}
}

func (m *Memo[K, V, P, A]) insert(r *ranking[P], place *P) {
	at := sort.Search(len(r.best), func(k int) bool { return m.places.Compare(&r.best[k], place) >= 0 })
	r.best = slices.Insert(r.best, at, *place)
}
