package sched_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// request makes a random request that fits the pool. Prompts have much in common.
func request(r *rand.Rand, positions int) (q sched.Request, cyclic bool) {
	n := 1 + r.IntN(min(40, positions))
	kind := rand.New(rand.NewPCG(r.Uint64N(3), 7))
	for range n {
		q.Prompt = append(q.Prompt, 1+kind.Int32N(vocabulary-1))
	}
	if r.IntN(2) == 0 {
		q.Prompt[r.IntN(n)] = 1
	}
	q.Max = n + 1 + r.IntN(min(24, positions-n+1))
	q.Priority = r.IntN(3) - 1
	q.Tenant = string(rune('a' + r.IntN(3)))
	q.Root = block.Key{Salt: string(rune('0' + r.IntN(2)))}.Root()
	switch r.IntN(8) {
	case 0:
		q.Siblings = 1 + r.IntN(4)
	case 1:
		q.Siblings, q.Score = r.IntN(3), true
	case 2:
		q.Pool = true
	case 3:
		q.Lockstep = true
	}
	return q, r.IntN(3) == 0
}

// play runs n random calls.
func (m *machine) play(n int) {
	for range n {
		switch {
		case m.r.IntN(4) == 0 && len(m.live) < 40:
			m.add(request(m.r, m.pool.Count()*m.pool.Size()))
		case m.r.IntN(20) == 0 && len(m.order) > 0:
			m.abort(m.order[m.r.IntN(len(m.order))])
		case m.r.IntN(100) == 0:
			m.reset()
		case m.r.IntN(2) == 0:
			m.schedule()
		default:
			m.update()
		}
	}
}

// FuzzSchedule plays random arrivals, departures, deaths of the worker, batches and results.
func FuzzSchedule(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, uint8(seed*7), uint8(seed), uint8(seed*3), uint8(seed*5), uint8(seed), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, blocks, size, budget, seats, more uint8, prefix bool) {
		cfg := sched.Config{Seats: 1 + int(seats)%8, Prefix: prefix, Depth: int(more) % 4, Draft: int(more) / 4 % 6}
		cfg.Budget = cfg.Seats + int(budget)%32
		m := newMachine(t, rand.New(rand.NewPCG(seed, 1)), cfg, block.New(1+int(blocks)%24, 1+int(size)%8))
		m.sched.Tune(int(more)/24%4, 0, 0)
		m.play(150)
		m.drain()
	})
}

// TestSameTokens plays one list of requests under all conditions. The tokens are the same as when each sequence
// runs alone, which the machine checks, and every condition has occurred.
func TestSameTokens(t *testing.T) {
	seen := sched.Stats{}
	copies, extra := 0, 0
	for _, depth := range []int{1, 2, 3} {
		for _, tight := range []bool{false, true} {
			for _, budget := range []int{6, 17, 200} {
				for _, prefix := range []bool{false, true} {
					for _, draft := range []int{0, 5} {
						for _, chaos := range []bool{false, true} {
							cfg := sched.Config{Budget: budget, Seats: 6, Depth: depth, Prefix: prefix, Draft: draft}
							t.Run(fmt.Sprintf("%+v tight %v chaos %v", cfg, tight, chaos), func(t *testing.T) {
								blocks := 400
								if tight {
									blocks = 17
								}
								m := newMachine(t, rand.New(rand.NewPCG(1, 1)), cfg, block.New(blocks, 4))
								m.sched.Tune(8, 0, 0)
								m.script(chaos)
								s := m.sched.Stats()
								if tight && s.Preemptions == 0 {
									t.Error("nothing was preempted")
								}
								if prefix != (s.PrefixFound > 0) || (draft > 0) != (s.Accepted > 0) {
									t.Errorf("%d tokens found in the cache, %d guesses were right", s.PrefixFound, s.Accepted)
								}
								if depth == 1 && m.extra > 0 && !chaos {
									t.Errorf("%d tokens were computed in vain, though every result was known", m.extra)
								}
								copies, extra = copies+m.copies, extra+m.extra
								seen.Promoted += s.Promoted
								seen.Evictions += s.Evictions
							})
						}
					}
				}
			}
		}
	}
	if copies == 0 || extra == 0 || seen.Promoted == 0 || seen.Evictions == 0 {
		t.Errorf("%d blocks copied, %d tokens after an end, %d promotions, %d evictions: want some of each", copies, extra, seen.Promoted, seen.Evictions)
	}
}

// script plays the same sixty requests each time. With chaos there are also priorities, departures and deaths.
func (m *machine) script(chaos bool) {
	list := rand.New(rand.NewPCG(2, 2))
	for range 60 {
		q, cyclic := request(list, 60)
		if !chaos {
			q.Priority = 0
		}
		m.add(q, cyclic)
		for range list.IntN(6) {
			for m.schedule() {
			}
			m.update()
		}
		if chaos && list.IntN(5) == 0 && len(m.order) > 0 {
			m.abort(m.order[list.IntN(len(m.order))])
		}
		if chaos && list.IntN(15) == 0 {
			m.reset()
		}
	}
	m.drain()
}

var soak = flag.Duration("soak", 0, "how long TestSoak plays")

// TestSoak plays random calls on random machines for the time of -soak.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("-soak says how long")
	}
	seed := uint64(time.Now().UnixNano())
	var total sched.Stats
	games := 0
	for start := time.Now(); time.Since(start) < *soak; games++ {
		seed++
		r := rand.New(rand.NewPCG(seed, 3))
		cfg := sched.Config{Seats: 1 + r.IntN(32), Prefix: r.IntN(4) > 0, Depth: r.IntN(4), Draft: r.IntN(8)}
		cfg.Budget = cfg.Seats + r.IntN(100)
		pool := block.New(1+r.IntN(200), 1+r.IntN(16))
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newMachine(t, r, cfg, pool)
			m.sched.Tune(r.IntN(20), r.IntN(20), r.IntN(20))
			m.play(20000)
			m.drain()
			s := m.sched.Stats()
			total.Preemptions += s.Preemptions
			total.PrefixFound += s.PrefixFound
			total.Accepted += s.Accepted
			total.Promoted += s.Promoted
		})
	}
	t.Logf("%d games: %d preemptions, %d tokens from the prefix cache, %d right guesses, %d promotions",
		games, total.Preemptions, total.PrefixFound, total.Accepted, total.Promoted)
}
