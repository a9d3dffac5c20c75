package memo

import "time"

// Question defines a search.
type Question[P, A any] interface {
	// Offer offers all places of a cell, one after another. They depend only on the question's version and the cell.
	Offer(cell int32, add func(*P))
	// Shown returns how many of the best places, which are in order, the search wants to see.
	Shown(best []P) int
	// Search computes the answer.
	Search() A
}

// Places describes places to a memo.
type Places[P any] struct {
	// Compare orders them, the better first; it returns 0 only for the same place in the same state.
	Compare func(a, b *P) int
	// Cell returns a place's cell.
	Cell func(*P) int32
	// Most is how many are kept in order for a search; 0: all. [Question.Shown] is at most half of that.
	Most int
}

// Memo caches the answers A of searches by their keys K, each for one version V of its question.
type Memo[K, V comparable, P, A any] struct {
	// Cells are the content that searches read.
	Cells
	places  Places[P]
	entries map[K]*entry[V, P, A]
	changed []int32 // scratch of refresh
	// asking is the current search, now its time.
	asking *entry[V, P, A]
	ask    Question[P, A]
	now    time.Time
	// kept and searched count answers.
	kept, searched int
}

// entry is the cached state of one key.
type entry[V comparable, P, A any] struct {
	version V
	known   bool
	used    bool // since the last sweep
	answer  A
	reads   []read
	until   time.Time // zero: for ever
	ranked  bool      // the answer depends on the places shown
	shown   []P
	ranking ranking[P]
}

// read is a cell's fingerprint as a search saw it.
type read struct {
	cell  int32
	print uint64
}

// New returns a memo over n empty cells.
func New[K, V comparable, P, A any](n int, places Places[P]) *Memo[K, V, P, A] {
	return &Memo[K, V, P, A]{Cells: NewCells(n), places: places, entries: make(map[K]*entry[V, P, A])}
}

// Find returns the answer to a question: the cached one while it is valid, else the search's. A search must not call Find.
func (m *Memo[K, V, P, A]) Find(key K, version V, now time.Time, q Question[P, A]) A {
	e := m.entries[key]
	if e == nil {
		e = &entry[V, P, A]{version: version}
		m.entries[key] = e
	}
	e.used = true
	if e.version != version {
		e.version, e.known = version, false
		e.ranking.forget()
	}
	if e.known && m.holds(e, now, q) {
		m.kept++
		return e.answer
	}
	m.searched++
	m.asking, m.ask, m.now = e, q, now
	e.reads, e.until, e.ranked = e.reads[:0], time.Time{}, false
	e.answer, e.known = q.Search(), true
	m.asking, m.ask = nil, nil
	return e.answer
}

// holds reports whether a search would find the cached answer again.
func (m *Memo[K, V, P, A]) holds(e *entry[V, P, A], now time.Time, q Question[P, A]) bool {
	if !e.until.IsZero() && !now.Before(e.until) {
		return false
	}
	for _, r := range e.reads {
		if m.prints[r.cell] != r.print {
			return false
		}
	}
	if !e.ranked || !m.refresh(&e.ranking, q) {
		return true
	}
	best := e.ranking.best
	if q.Shown(best) != len(e.shown) {
		return false
	}
	for k := range e.shown {
		if m.places.Compare(&best[k], &e.shown[k]) != 0 {
			return false
		}
	}
	return true
}

// Read records that the current search reads a cell.
func (m *Memo[K, V, P, A]) Read(cell int32) {
	if e := m.asking; e != nil {
		if n := len(e.reads); n > 0 && e.reads[n-1].cell == cell {
			return
		}
		e.reads = append(e.reads, read{cell, m.prints[cell]})
	}
}

// HoldsUntil records that the result of the current search may change at t. A t that has passed is ignored.
func (m *Memo[K, V, P, A]) HoldsUntil(t time.Time) {
	if e := m.asking; e != nil && t.After(m.now) && (e.until.IsZero() || t.Before(e.until)) {
		e.until = t
	}
}

// Uncacheable records that the result of the current search may change at any time.
func (m *Memo[K, V, P, A]) Uncacheable() { m.HoldsUntil(m.now.Add(1)) }

// Best returns the best places for the current search, in order. The memo owns the slice: it must not be changed, and is valid until
// the next search.
func (m *Memo[K, V, P, A]) Best() []P {
	e := m.asking
	m.refresh(&e.ranking, m.ask)
	best := e.ranking.best
	best = best[:m.ask.Shown(best)]
	e.ranked, e.shown = true, append(e.shown[:0], best...)
	return best
}

// Sweep drops keys that were not looked up since the last sweep.
func (m *Memo[K, V, P, A]) Sweep() {
	for key, e := range m.entries {
		if !e.used {
			delete(m.entries, key)
		}
		e.used = false
	}
}

// Counts returns how many answers were cached, and how many searched.
func (m *Memo[K, V, P, A]) Counts() (kept, searched int) { return m.kept, m.searched }
