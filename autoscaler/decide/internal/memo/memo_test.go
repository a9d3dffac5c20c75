package memo

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is cells with a number each; a search wants the best places, and the least number that it divides.
type world struct {
	*Memo[int, int, place, answer]
	numbers []int
}

type place struct{ number, cell int }

type answer struct {
	first place
	reads int // of the shown places, up to the first that it divides
}

func newWorld(n, most int) *world {
	w := &world{numbers: make([]int, n)}
	w.Memo = New[int, int, place, answer](n, Places[place]{
		Compare: func(a, b *place) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.cell, b.cell)) },
		Cell:    func(p *place) int32 { return int32(p.cell) },
		Most:    most,
	})
	for k := range n {
		w.Add(int32(k), Hash(0))
	}
	return w
}

func (w *world) set(cell, number int) {
	w.Remove(int32(cell), Hash(w.numbers[cell]))
	w.numbers[cell] = number
	w.Add(int32(cell), Hash(number))
}

// question asks for the best place whose number a divisor divides, beside the number of one cell.
type question struct {
	w       *world
	divisor int
	shown   int
	runs    *int
}

func (q question) Offer(cell int32, add func(*place)) {
	if n := q.w.numbers[cell]; n%7 != 0 { // some cells have no place
		add(&place{n, int(cell)})
	}
}

func (q question) Shown(best []place) int { return min(q.shown, len(best)) }

func (q question) Search() (a answer) {
	*q.runs++
	for _, p := range q.w.Best() {
		q.w.Read(int32(p.cell))
		a.reads++
		if q.w.numbers[p.cell]%q.divisor == 0 {
			a.first = p
			return a
		}
	}
	return a
}

// want is the answer by looking at all.
func (q question) want() (a answer) {
	var all []place
	for k := range q.w.numbers {
		q.Offer(int32(k), func(p *place) { all = append(all, *p) })
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.cell, b.cell))
	})
	for _, p := range all[:q.Shown(all)] {
		a.reads++
		if p.number%q.divisor == 0 {
			a.first = p
			return a
		}
	}
	return a
}

// TestFind changes cells, some of them back, and compares each answer with that of a search of all cells.
func TestFind(t *testing.T) {
	for _, c := range []struct{ cells, most, shown int }{{1, 0, 1}, {20, 0, 20}, {300, 8, 4}, {300, 48, 24}} {
		r := rand.New(rand.NewPCG(1, uint64(c.cells)))
		w := newWorld(c.cells, c.most)
		runs, asked := 0, 0
		for round := range 400 {
			few := r.IntN(2) * 4
			for range r.IntN(1 + few) {
				w.set(r.IntN(c.cells), r.IntN(1000))
			}
			for range r.IntN(1 + few) {
				if round/50%2 == 0 { // lists grow
					w.set(r.IntN(c.cells), r.IntN(100))
				} else { // the best get worse: lists run out
					w.set(slices.Index(w.numbers, slices.Min(w.numbers)), 1000+r.IntN(1000))
				}
			}
			if r.IntN(40) == 0 { // enough that lists are rebuilt
				for k := range c.cells {
					w.set(k, r.IntN(1000))
				}
			}
			for key := range 4 {
				tried := r.IntN(c.cells)
				was := w.numbers[tried]
				for _, number := range []int{was, r.IntN(1000), was} { // what was known before is known again
					w.set(tried, number)
					q := question{w, 2 + key, c.shown, &runs}
					asked++
					if got, want := w.Find(key, 0, time.Time{}, q), q.want(); got != want {
						t.Fatalf("%+v: round %d, key %d: got %+v, want %+v", c, round, key, got, want)
					}
				}
			}
		}
		if kept, searched := w.Counts(); searched != runs || kept+searched != asked || c.cells > 1 && kept < asked/8 {
			t.Errorf("%+v: %d answers kept and %d searched in %d runs for %d questions", c, kept, searched, runs, asked)
		}
	}
}

// TestHolds checks what ends an answer beside cells: the version, the time, and that nobody asks for it.
func TestHolds(t *testing.T) {
	w := newWorld(3, 0)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var until []time.Time
	var uncacheable bool
	runs := 0
	find := func(version int, now time.Time) { w.Find(0, version, now, timed{w, &until, &uncacheable, &runs}) }
	for _, c := range []struct {
		name string
		do   func()
		want int
	}{
		{"the first", func() { find(1, start) }, 1},
		{"the same", func() { find(1, start.Add(time.Hour)) }, 0},
		{"another version", func() { until = []time.Time{start.Add(2 * time.Hour), start, start.Add(time.Hour)}; find(2, start) }, 1},
		{"before the earliest time to come", func() { find(2, start.Add(time.Hour-1)) }, 0},
		{"at that time", func() { find(2, start.Add(time.Hour)) }, 1},
		{"before the next", func() { find(2, start.Add(2*time.Hour-1)) }, 0},
		{"after all of them", func() { find(2, start.Add(2*time.Hour)); find(2, start.Add(3*time.Hour)) }, 1},
		{"a cell that it has not read", func() { w.set(1, 5); find(2, start.Add(3*time.Hour)) }, 0},
		{"a cell that it has read", func() { w.set(0, 5); find(2, start.Add(3*time.Hour)) }, 1},
		{"a cell that is what it was", func() { w.set(0, 6); w.set(0, 5); find(2, start.Add(3*time.Hour)) }, 0},
		{"asked for since the last sweep", func() { w.Sweep(); find(2, start.Add(3*time.Hour)); w.Sweep(); find(2, start.Add(3*time.Hour)) }, 0},
		{"not asked for since the last sweep", func() { w.Sweep(); w.Sweep(); find(2, start.Add(3*time.Hour)) }, 1},
		{"good for this moment only", func() {
			uncacheable = true
			find(3, start)
			find(3, start)
			find(3, start.Add(1))
		}, 2},
	} {
		before := runs
		if c.do(); runs-before != c.want {
			t.Errorf("%s: %d searches, want %d", c.name, runs-before, c.want)
		}
	}
}

// timed is a question whose answer holds for a time. It reads cell 0.
type timed struct {
	w           *world
	until       *[]time.Time
	uncacheable *bool
	runs        *int
}

func (timed) Offer(int32, func(*place)) {}
func (timed) Shown([]place) int         { return 0 }

func (q timed) Search() answer {
	*q.runs++
	q.w.Read(0)
	for _, t := range *q.until {
		q.w.HoldsUntil(t)
	}
	if *q.uncacheable {
		q.w.Uncacheable()
	}
	return answer{}
}

func TestWatch(t *testing.T) {
	w := newWorld(3, 0)
	watch := NewWatch(3)
	check := func(name string, want ...int32) {
		t.Helper()
		if got := watch.Dirty(&w.Cells); !slices.Equal(got, want) {
			t.Errorf("%s: %v are dirty, want %v", name, got, want)
		}
	}
	check("nobody has looked", 0, 1, 2)
	check("nothing has changed")
	w.set(1, 5)
	check("one has changed", 1)
	w.set(1, 6)
	w.set(1, 5)
	check("it has changed back")
	watch.Mark(2)
	check("one was marked", 2)
	w.set(0, 7)
	watch.MarkChanged(&w.Cells)
	w.set(0, 0)
	check("one was changed when that was marked, and has changed back", 0)
}
