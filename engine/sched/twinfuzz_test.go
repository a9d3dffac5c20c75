package sched_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// FuzzTwin plays random calls on a scheduler and its twin, and checks that they make the same batches.
func FuzzTwin(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, uint8(seed*7), uint8(seed), uint8(seed*3), uint8(seed*5), uint8(seed*11), seed%3 > 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, blocks, size, budget, seats, more uint8, prefix bool) {
		cfg := sched.Config{Seats: 1 + int(seats)%8, Prefix: prefix, Depth: int(more) % 4}
		cfg.Budget = cfg.Seats + int(budget)%32
		count, width := 1+int(blocks)%24, 1+int(size)%8
		m := newMachine(t, rand.New(rand.NewPCG(seed, 1)), cfg, block.New(count, width))
		w := newTwin(cfg, count, width)
		w.patience, w.aging = int(more)/4%8, int(more)/32
		m.sched.Tune(w.patience, w.aging, 0)
		for range 200 {
			switch {
			case m.r.IntN(4) == 0 && len(m.live) < 40:
				r, cyclic := request(m.r, count*width)
				m.add(r, cyclic)
				r.ID = m.last + 1 - sched.ID(max(1, r.Siblings))
				w.add(r)
			case m.r.IntN(20) == 0 && len(m.order) > 0:
				id := m.order[m.r.IntN(len(m.order))]
				m.abort(id)
				w.abort(id)
			case m.r.IntN(2) == 0:
				m.schedule()
				if diff := cmp.Diff(w.schedule(), m.words); diff != "" {
					t.Fatalf("another batch (-twin +scheduler):\n%s", diff)
				}
			case len(m.flights) > 0:
				m.update()
				w.update(m.results)
			}
			compare(t, m, w)
		}
	})
}

// compare compares the numbers of both.
func compare(t *testing.T, m *machine, w *twin) {
	s := m.sched.Stats()
	got := sched.Stats{Running: s.Running, Waiting: s.Waiting, BlocksUsed: s.BlocksUsed, BlocksCached: s.BlocksCached,
		Preemptions: s.Preemptions, Evictions: s.Evictions, PrefixFound: s.PrefixFound, Promoted: s.Promoted}
	want := w.stats
	want.Running = len(w.seats())
	want.Waiting = len(w.all) - want.Running
	want.BlocksUsed, want.BlocksCached, want.Evictions = w.pool.Count()-w.pool.Available(), w.pool.Cached(), w.pool.Evictions()
	if got != want {
		t.Fatalf("the scheduler says %+v, its twin %+v", got, want)
	}
}
