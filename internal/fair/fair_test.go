package fair

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api/control"
)

// twin is the order as a list that is searched each time, with the counters of all nodes by name.
type twin struct {
	waiting  []*Item
	counters map[place]float64
	floors   map[place]float64 // by the parent
	below    func(*Item) bool  // of one priority these go first; nil: all are alike
}

// place names a node: its level from 1, source, priority and client; the zero value is the whole.
type place [4]uint64

// path returns the nodes of a client's source, priority and itself.
func path(c Client, priority int) [3]place {
	band := uint64(Clamp(priority))
	return [3]place{{1, c.Source}, {2, c.Source, band}, {3, c.Source, band, c.Name}}
}

func parent(p [3]place, level int) place {
	if level == 0 {
		return place{}
	}
	return p[level-1]
}

// first orders nodes as the queue must: it returns the first of the items of a part of a level.
func (w *twin) first(of place, level int) *Item {
	if below := w.below; level == 2 && below != nil {
		w.below = nil
		defer func(all []*Item) { w.waiting, w.below = all, below }(w.waiting)
		some := slices.DeleteFunc(slices.Clone(w.waiting), func(i *Item) bool { return !below(i) })
		if slices.ContainsFunc(some, func(i *Item) bool { return path(i.Client, i.Priority)[1] == of }) {
			w.waiting = some
		}
	}
	heads := map[place]*Item{}
	for _, i := range w.waiting {
		p := path(i.Client, i.Priority)
		switch name := p[min(level, 2)]; {
		case level > 0 && parent(p, level) != of:
		case level == 3:
			if h := heads[place{}]; p[2] == of && (h == nil || before(i, h)) {
				heads[place{}] = i
			}
		case heads[name] == nil:
			heads[name] = w.first(name, level+1)
		}
	}
	if level == 3 {
		return heads[place{}]
	}
	var best place
	for name, i := range heads {
		b := heads[best]
		if b == nil {
			best = name
			continue
		}
		order := cmp.Compare(w.counters[name], w.counters[best])
		if level == 1 {
			order = cmp.Or(shifted(i).Compare(shifted(b)), b.Priority-i.Priority)
		}
		if cmp.Or(order, cmp.Compare(i.Ticket, b.Ticket)) < 0 {
			best = name
		}
	}
	return heads[best]
}

func shifted(i *Item) time.Time {
	return i.Arrived.Add(-control.Aging * time.Duration(i.Priority))
}

func before(a, b *Item) bool {
	switch {
	case a.Due.Equal(b.Due):
		return a.Ticket < b.Ticket
	case a.Due.IsZero() || b.Due.IsZero():
		return b.Due.IsZero()
	}
	return a.Due.Before(b.Due)
}

// enter raises the counters of a client, its priority and its source that have no waiting request.
func (w *twin) enter(c Client, priority int) {
	p := path(c, priority)
	for level, name := range p {
		least, waits := w.floors[parent(p, level)], false
		if next := w.next(parent(p, level), level); next[0] > 0 {
			least = w.counters[next]
		}
		for _, i := range w.waiting {
			waits = waits || path(i.Client, i.Priority)[level] == name
		}
		if !waits {
			w.counters[name] = max(w.counters[name], least)
		}
	}
}

// next returns the node of a level that goes first; zero: none waits.
func (w *twin) next(of place, level int) place {
	var among []*Item
	for _, i := range w.waiting {
		if parent(path(i.Client, i.Priority), level) == of {
			among = append(among, i)
		}
	}
	if len(among) == 0 {
		return place{}
	}
	all := w.waiting
	w.waiting = among
	i := w.first(of, level)
	w.waiting = all
	return path(i.Client, i.Priority)[level]
}

func (w *twin) charge(c Client, priority int, cost float64, served bool) {
	p := path(c, priority)
	for level, name := range p {
		if served && cost > 0 {
			w.floors[parent(p, level)] = max(w.floors[parent(p, level)], w.counters[name])
		}
		w.counters[name] += cost
	}
}

// TestAgainstSlowTwin compares the order with a list that is searched each time, with one source and with several.
func TestAgainstSlowTwin(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compare(t, rand.New(rand.NewPCG(seed, 2)), seed/2*2+1) })
	}
}

func compare(t *testing.T, r *rand.Rand, sources uint64) {
	type running struct {
		Client
		priority int
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q Queue
	w := twin{counters: map[place]float64{}, floors: map[place]float64{}}
	var run []running
	charge := func(c Client, priority int) {
		cost := float64(r.IntN(100))
		q.Charge(c, priority, cost)
		w.enter(c, priority)
		w.charge(c, priority, cost, true)
		run = append(run, running{c, priority})
	}
	for step := range uint64(10_000) {
		now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		c, priority := Client{r.Uint64N(sources), r.Uint64N(5)}, r.IntN(4)-1
		if r.IntN(20) == 0 {
			priority *= 100
		}
		op := r.IntN(7)
		if len(w.waiting) > 20 {
			op = 6
		}
		switch {
		case op == 0: // it gets a slot at once
			charge(c, priority)
		case op <= 2:
			i := &Item{Client: c, Priority: priority, Arrived: now.Add(-time.Duration(r.IntN(30)) * time.Second), Ticket: step + 1}
			if r.IntN(2) == 0 {
				i.Due = now.Add(time.Duration(r.IntN(3)) * time.Second)
			}
			q.Put(i)
			w.enter(c, priority)
			w.waiting = append(w.waiting, i)
		case op == 3 && len(w.waiting) > 0: // it leaves
			at := r.IntN(len(w.waiting))
			if !q.Remove(w.waiting[at]) || q.Remove(w.waiting[at]) {
				t.Fatalf("step %d: an item was not removed, or twice", step)
			}
			w.waiting = slices.Delete(w.waiting, at, at+1)
		case op == 4 && len(run) > 0: // its request ends
			at, more := r.IntN(len(run)), float64(r.IntN(20)-10)
			q.Settle(run[at].Client, run[at].priority, more)
			w.charge(run[at].Client, run[at].priority, more, false)
			run = slices.Delete(run, at, at+1)
		case op == 5:
			cost := float64(r.IntN(40) - 10)
			q.Elsewhere(c, priority, cost)
			w.enter(c, priority)
			w.charge(c, priority, cost, true)
		case op == 6 && len(w.waiting) > 0:
			want := w.first(place{}, 0)
			if got := q.First(); got != want {
				t.Fatalf("step %d: %+v is next, want %+v of %d", step, got, want, len(w.waiting))
			}
			some := func(i *Item) bool { return (i.Ticket+step)%3 == 0 }
			all := w.waiting
			w.waiting = slices.DeleteFunc(slices.Clone(all), func(i *Item) bool { return !some(i) })
			if got, want := q.FirstOf(some, nil, true), w.first(place{}, 0); got != want {
				t.Fatalf("step %d: %+v is next of some, want %+v", step, got, want)
			}
			w.below = func(i *Item) bool { return (i.Client.Name+step)%2 == 0 }
			if got, want := q.FirstOf(some, w.below, true), w.first(place{}, 0); got != want {
				t.Fatalf("step %d: %+v is next of some with those below their share first, want %+v", step, got, want)
			}
			w.below = nil
			w.waiting = all
			charge(want.Client, want.Priority)
			q.Remove(want)
			w.waiting = slices.DeleteFunc(all, func(i *Item) bool { return i == want })
		}
		if q.Len() != len(w.waiting) {
			t.Fatalf("step %d: %d wait, want %d", step, q.Len(), len(w.waiting))
		}
		if last := q.Last(0); (last != nil) != slices.ContainsFunc(w.waiting, func(i *Item) bool { return i.Priority < 0 }) || last != nil && slices.ContainsFunc(w.waiting, func(i *Item) bool { return i.Priority < last.Priority }) {
			t.Fatalf("step %d: %+v is the last below 0", step, last)
		}
	}
}

// TestSourceThatLies: a front door whose clients, priorities and waits are invented gets no more than the clients that
// come directly.
func TestSourceThatLies(t *testing.T) {
	var q Queue
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	direct := &Item{Client: Client{Name: 2}, Arrived: now, Ticket: 1}
	q.Put(direct)
	served := map[uint64]int{}
	for n := range uint64(1000) {
		for k := range uint64(20) {
			q.Put(&Item{Client: Client{Source: 9, Name: 100 + 20*n + k}, Priority: 100, Arrived: now.Add(-time.Hour), Ticket: 2 + 20*n + k})
		}
		next := q.First()
		q.Charge(next.Client, next.Priority, 10)
		q.Remove(next)
		q.Settle(next.Client, next.Priority, 0)
		served[next.Client.Source]++
		if next == direct {
			direct.Ticket = 1 << 40
			q.Put(direct)
		}
	}
	if served[0] < 499 {
		t.Errorf("the direct client was served %d times and the front door %d times, want half each", served[0], served[9])
	}
}

// TestManyClients: the memory of clients that are gone is bounded.
func TestManyClients(t *testing.T) {
	var q Queue
	most := 0
	for n := range uint64(200_000) {
		c := Client{Name: n + 2}
		q.Charge(c, 0, 1)
		q.Settle(c, 0, float64(n%7))
		most = max(most, len(q.root.children[0].children[0].children))
	}
	if most > 2*mostIdle {
		t.Errorf("%d clients are remembered", most)
	}
}

// BenchmarkHandOver hands a slot over while so many requests of as many clients wait: it settles one request, chooses
// the next, and adds another that waits.
func BenchmarkHandOver(b *testing.B) {
	for _, waiting := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(waiting, " waiting"), func(b *testing.B) {
			var q Queue
			items := make([]Item, waiting)
			for n := range items {
				items[n] = Item{Client: Client{Name: uint64(n)}, Ticket: uint64(n)}
				q.Put(&items[n])
			}
			ticket := uint64(waiting)
			for b.Loop() {
				i := q.First()
				q.Charge(i.Client, 0, 100)
				q.Remove(i)
				q.Settle(i.Client, 0, float64(ticket%20))
				i.Ticket = ticket
				ticket++
				q.Put(i)
			}
		})
	}
}
