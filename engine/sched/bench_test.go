package sched_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// loop is an engine that computes nothing: n sequences with prompts of 64 to 127 tokens, one batch after
// the other. They fill their blocks at different times, and don't share the lines of a cache set.
type loop struct {
	sched   *sched.Scheduler
	results [][]sched.Result // of the batches in flight, a ring
	steps   []uint64
	token   [1]int32
	at      int
}

func newLoop(tb testing.TB, n, depth, steps int) *loop {
	s := sched.New(sched.Config{Budget: 1 << 20, Seats: n, Depth: depth, Prefix: true}, block.New(n*(128+steps)/16, 16))
	for i := range n {
		prompt := make([]int32, 64+i*37%64)
		prompt[0] = int32(i)
		if err := s.Add(sched.Request{ID: sched.ID(i), Prompt: prompt, Max: len(prompt) + steps}); err != nil {
			tb.Fatal(err)
		}
	}
	l := &loop{sched: s, results: make([][]sched.Result, depth), steps: make([]uint64, depth), token: [1]int32{7}}
	for i := range l.results {
		l.results[i] = make([]sched.Result, 0, n)
	}
	for range 2 * depth {
		l.step(tb)
	}
	runtime.GC() // a step makes no garbage, so it should not pay for the setup's
	return l
}

// step schedules until the pipe is full and takes the oldest results.
func (l *loop) step(tb testing.TB) {
	depth := len(l.results)
	for l.sched.InFlight() < depth {
		b := l.sched.Schedule()
		if b == nil {
			tb.Fatal("nothing to do")
		}
		i := int(b.Step) % depth
		l.steps[i], l.results[i] = b.Step, l.results[i][:0]
		for j := range b.Items {
			if it := &b.Items[j]; it.Sample {
				l.results[i] = append(l.results[i], sched.Result{ID: it.ID, Tokens: l.token[:]})
			}
		}
		l.at = i
	}
	i := (l.at + 1) % depth
	if !l.sched.Update(l.steps[i], l.results[i]) {
		tb.Fatal("the results are refused")
	}
}

// BenchmarkStep measures Schedule and Update together, with all sequences decoding.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 16, 256, 1024} {
		for _, depth := range []int{1, 2} {
			b.Run(fmt.Sprintf("sequences=%d/depth=%d", n, depth), func(b *testing.B) {
				b.ReportAllocs()
				const life = 900
				left := 0
				var l *loop
				for b.Loop() {
					if left--; left <= 0 {
						b.StopTimer()
						l, left = newLoop(b, n, depth, life), life-8*depth
						b.StartTimer()
					}
					l.step(b)
				}
			})
		}
	}
}

func TestAStepAllocatesNothing(t *testing.T) {
	for _, depth := range []int{1, 2} {
		l := newLoop(t, 64, depth, 500)
		if got := testing.AllocsPerRun(300, func() { l.step(t) }); got != 0 {
			t.Errorf("depth %d: %v allocations a step, want 0", depth, got)
		}
	}
}

// BenchmarkAdmit measures Add, Schedule, Update and Abort of a prompt of 4,096 tokens, a new one and one
// that is in the prefix cache.
func BenchmarkAdmit(b *testing.B) {
	for _, found := range []bool{false, true} {
		b.Run(fmt.Sprintf("found=%v", found), func(b *testing.B) {
			s := sched.New(sched.Config{Budget: 8192, Seats: 4, Prefix: true}, block.New(1024, 16))
			prompt := make([]int32, 4096)
			id := sched.ID(0)
			for b.Loop() {
				id++
				if !found {
					prompt[0]++
				}
				if err := s.Add(sched.Request{ID: id, Prompt: prompt, Max: 4200}); err != nil {
					b.Fatal(err)
				}
				batch := s.Schedule()
				s.Update(batch.Step, []sched.Result{{ID: id, Tokens: []int32{1}}})
				s.Abort(id)
			}
		})
	}
}
