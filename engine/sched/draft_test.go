package sched_test

import (
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// TestDraftsPay counts batches. A repetitive text takes far fewer of them. Another text takes hardly
// more, and few tokens are computed in vain.
func TestDraftsPay(t *testing.T) {
	const n = 400
	for _, depth := range []int{1, 2} {
		for _, repeats := range []bool{false, true} {
			m := newMachine(t, rand.New(rand.NewPCG(1, 1)), sched.Config{Budget: 64, Seats: 4, Depth: depth, Draft: 4}, block.New(400, 16))
			batches, made := 0, 0
			for range 10 { // one after the other
				m.add(sched.Request{Prompt: random(m.r, 40), Max: 40 + n}, repeats)
				made += len(m.live[m.last].want) - 40
				for len(m.live) > 0 {
					for m.schedule() {
						batches++
					}
					m.update()
				}
				for m.update() {
				}
			}
			s := m.sched.Stats()
			t.Logf("depth %d, repeats %v: %d tokens in %d batches, %d of %d guesses right", depth, repeats, made, batches, s.Accepted, s.Drafted)
			switch {
			case repeats && batches > made/3:
				t.Errorf("depth %d: a text that repeats itself took %d batches for %d tokens, want at most a third", depth, batches, made)
			case !repeats && (s.Drafted-s.Accepted > made/3 || batches > made*21/20+20):
				t.Errorf("depth %d: another text took %d batches for %d tokens, and %d wrong guesses: want at most a third", depth, batches, made, s.Drafted-s.Accepted)
			}
		}
	}
}

func random(r *rand.Rand, n int) (list []int32) {
	for range n {
		list = append(list, 1+r.Int32N(vocabulary-1))
	}
	return list
}
