package sched_test

import (
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

func TestLateResultIsIgnored(t *testing.T) {
	p := block.New(4, 2)
	s := sched.New(sched.Config{Budget: 4, Seats: 2}, p)
	if err := s.Add(sched.Request{ID: 1, Prompt: []int32{5}, Max: 4}); err != nil {
		t.Fatal(err)
	}
	step := s.Schedule().Step
	s.Abort(1)
	if !s.Update(step, []sched.Result{{ID: 1, Tokens: []int32{3}}}) {
		t.Error("the update of the batch in flight is refused")
	}
	if got, want := s.Stats(), (sched.Stats{BlocksTotal: 4}); got != want {
		t.Errorf("after the abort: %+v, want %+v", got, want)
	}
}

func TestPromptIsNotWrittenTo(t *testing.T) {
	p := block.New(8, 2)
	s := sched.New(sched.Config{Budget: 8, Seats: 2}, p)
	shared := append(make([]int32, 0, 8), 1, 2, 3)
	for id := range sched.ID(2) {
		if err := s.Add(sched.Request{ID: id, Prompt: shared, Max: 6}); err != nil {
			t.Fatal(err)
		}
	}
	s.Update(s.Schedule().Step, []sched.Result{{ID: 0, Tokens: []int32{8}}, {ID: 1, Tokens: []int32{9}}})
	var got []int32
	for _, item := range s.Schedule().Items {
		got = append(got, item.Tokens...)
	}
	if want := []int32{8, 9}; !slices.Equal(got, want) {
		t.Errorf("two sequences with one prompt: next tokens %v, want %v", got, want)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []sched.Config{{}, {Budget: 1, Seats: 2}, {Budget: -1, Seats: -1}, {Budget: 1, Seats: 1, Depth: -1}} {
		if c.Validate() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if err := (sched.Config{Budget: 2, Seats: 2}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestStrangeResults checks that wrong results of a worker that get past the engine's checks do no harm.
func TestStrangeResults(t *testing.T) {
	for _, test := range []struct {
		name    string
		step    uint64
		results []sched.Result
		taken   bool
		running int
	}{
		{"in order", 1, []sched.Result{{ID: 1, Tokens: []int32{1}}, {ID: 2, Tokens: []int32{1}}}, true, 2},
		{"in another order", 1, []sched.Result{{ID: 2, Tokens: []int32{1}}, {ID: 1, Tokens: []int32{1}}}, true, 2},
		{"more tokens than are due", 1, []sched.Result{{ID: 1, Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}}, {ID: 2, Tokens: []int32{1}}}, true, 2},
		{"one is missing", 1, []sched.Result{{ID: 2, Tokens: []int32{1}}}, true, 1},
		{"one has no tokens", 1, []sched.Result{{ID: 1}, {ID: 2, Tokens: []int32{1}}}, true, 1},
		{"nobody knows one", 1, []sched.Result{{ID: 7, Tokens: []int32{1}}, {ID: 1, Tokens: []int32{1}}, {ID: 2, Tokens: []int32{1}}}, true, 2},
		{"nothing", 1, nil, true, 0},
		{"a step that is not there", 2, nil, false, 2},
	} {
		s := sched.New(sched.Config{Budget: 8, Seats: 2}, block.New(8, 2))
		for id := range sched.ID(2) {
			if err := s.Add(sched.Request{ID: id + 1, Prompt: []int32{5, 6}, Max: 6}); err != nil {
				t.Fatal(err)
			}
		}
		s.Schedule()
		if got := s.Update(test.step, test.results); got != test.taken {
			t.Errorf("%s: taken: got %v, want %v", test.name, got, test.taken)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := s.Stats().Running; got != test.running {
			t.Errorf("%s: %d sequences run on, want %d", test.name, got, test.running)
		}
		if b := s.Schedule(); test.taken && test.running > 0 && (b == nil || len(b.Items) != test.running) {
			t.Errorf("%s: the next batch is %+v, want %d sequences", test.name, b, test.running)
		}
	}
}
