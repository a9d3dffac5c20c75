package sched_test

import (
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// TestSpansAreWhole: no batch ends within a span or has two, whatever the budget, beside another sequence, and after a preemption. A prefix from
// the cache may end within one: its rest is computed whole.
func TestSpansAreWhole(t *testing.T) {
	spans := []sched.Span{{3, 8}, {8, 12}, {20, 29}}
	prompt := make([]int32, 32)
	for budget := 2; budget < 40; budget++ {
		s := sched.New(sched.Config{Budget: budget, Seats: 2, Prefix: true}, block.New(24, 2))
		begun := 0
		for id := range sched.ID(3) {
			r := sched.Request{ID: id, Prompt: slices.Clone(prompt), Max: 40, Whole: spans, Tenant: string(rune('a' + id))}
			r.Prompt[31] = int32(id) // 0 and 1 find blocks of one another
			if id == 2 {
				r.Prompt[7], r.Priority = 9, -1 // its prefix ends within a span
			}
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		for b := s.Schedule(); b != nil; b = s.Schedule() {
			var results []sched.Result
			whole := 0
			for _, it := range b.Items {
				end := it.Pos + len(it.Tokens)
				for _, w := range spans {
					if w.From < end && end < w.To {
						t.Errorf("budget %d, step %d: sequence %d ends at %d within %v", budget, b.Step, it.ID, end, w)
					}
					if w.From < it.Pos && it.Pos < w.To {
						begun++
					}
					if it.Pos < w.To && w.From < end {
						whole++
					}
				}
				if it.Sample {
					results = append(results, sched.Result{ID: it.ID, Tokens: []int32{5}})
				}
			}
			if most := budget + 9; whole > 1 || b.Tokens > most {
				t.Errorf("budget %d: a step of %d tokens with %d spans", budget, b.Tokens, whole)
			}
			s.Update(b.Step, results)
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Stats(); got.Running+got.Waiting > 0 {
			t.Errorf("budget %d: %+v", budget, got)
		}
		if budget == 39 && begun == 0 {
			t.Error("no prefix ended within a span: the test does not test what it says")
		}
	}
}
