package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

const (
	startTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	wakeTrace  = "4bf92f3577b34da6a3ce929d0e0e4737"
	someSpan   = "00f067aa0ba902b7"
	otherSpan  = "00f067aa0ba902b8"
)

// TestSteps: of a start after a fetch, of a wake, and of a start after a failed one; and the span of each.
func TestSteps(t *testing.T) {
	w := &world{load: 5 * second, rise: 2 * second, traits: runtime.Traits{Sleeps: true}}
	f := &fetcher{w: w, took: 3 * second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(time.Minute)
		synctest.Wait()
		st := s.Status()
		want := []api.Step{
			{Name: api.StepFetching, Took: 3 * second},
			{Name: api.StepForking, After: 3 * second},
			{Name: api.StepLoading, After: 3 * second, Took: 5 * second},
		}
		if diff := cmp.Diff(want, st.Steps); diff != "" {
			t.Errorf("the start: %s", diff)
		}
		if st.StepsSpan != someSpan {
			t.Errorf("the steps of the start are of %q", st.StepsSpan)
		}
		if _, err := s.Sleep(t.Context(), control.SleepRequest{Level: api.Level1, Epoch: 2}); err != nil {
			t.Fatal(err)
		}
		ctx := api.WithTrace(t.Context(), api.Trace{ID: wakeTrace, Span: otherSpan})
		if st, err := s.Wake(ctx, api.Grant{Epoch: 3}); err != nil || len(st.Steps) == 0 {
			t.Fatalf("the wake: %v, %v", st.Steps, err)
		}
		if got := s.Status().StepsSpan; got != otherSpan {
			t.Errorf("the steps of the wake are of %q", got)
		}
		want = []api.Step{{Name: api.StepWaking, Took: 2 * second}}
		if diff := cmp.Diff(want, s.Status().Steps); diff != "" {
			t.Errorf("the wake: %s", diff)
		}
		w.children[0].end("killed") // without a trace
		time.Sleep(time.Minute)
		if st := s.Status(); st.State != api.Awake || len(st.Steps) != 3 {
			t.Errorf("after a restart it is %s, and its steps are %v", st.State, st.Steps)
		} else if st.StepsSpan != "" {
			t.Errorf("the steps of a restart that nobody asked for are of %q", st.StepsSpan)
		}
	}, f.config, func(c *supervise.Config) {
		c.Trace = api.Trace{ID: startTrace, Span: someSpan}
	})
}

// TestStepsAfterAWakeThatFailed are those of the following start.
func TestStepsAfterAWakeThatFailed(t *testing.T) {
	w := &world{traits: runtime.Traits{Sleeps: true}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		if _, err := s.Sleep(t.Context(), control.SleepRequest{Level: api.Level2, Epoch: 2}); err != nil {
			t.Fatal(err)
		}
		w.set(func() { w.rise = second; w.wakeErr = errors.New("no memory") })
		if _, err := s.Wake(t.Context(), api.Grant{Epoch: 3}); err != nil {
			t.Fatal(err)
		}
		st := s.Status()
		last := st.Steps[len(st.Steps)-1]
		if last.Name != api.StepRestoring || last.Took != 100*time.Millisecond {
			t.Errorf("the last step is %+v, want that before the first request", last)
		}
		for k, s := range st.Steps[1:] {
			if before := st.Steps[k]; s.After != before.After+before.Took {
				t.Errorf("%s begins after %s, and %s ends after %s", s.Name, s.After, before.Name, before.After+before.Took)
			}
		}
		if st.Steps[0].After != 0 || st.Steps[0].Name == api.StepWaking {
			t.Errorf("the steps of what failed are among %v", st.Steps)
		}
	}, func(c *supervise.Config) {
		c.Ready = func(ctx context.Context, _ api.Endpoint) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}
	})
}

// yielding is a runtime whose server refuses an option of ours.
type yielding struct {
	*world
	yielded bool
}

const refused, without = "it has no sleep mode here", "it is stopped instead"

func (y *yielding) Yield(output string) string {
	if y.yielded || !strings.Contains(output, refused) {
		return ""
	}
	y.yielded = true
	y.set(func() { y.exits, y.traits.Sleeps = false, false })
	return without
}

// TestStartWithoutWhatTheServerRefuses: the first start fails, and the next one omits the option. Waiting callers do not notice, but the
// state says so.
func TestStartWithoutWhatTheServerRefuses(t *testing.T) {
	w := &world{exits: true, prints: refused, traits: runtime.Traits{Sleeps: true}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantStates(t, w, "starting(starting runtime) starting(loading) "+comesUp)
		wantCalls(t, w, "start 100", "start 101")
		if st := s.Status(); st.Message != without || st.Restarts != 0 {
			t.Errorf("the state says %q after %d restarts, want %q and none", st.Message, st.Restarts, without)
		}
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "stop 101 after 5s", "start 102")
		if st := s.Status(); st.Message != without {
			t.Errorf("after a wake the state says %q", st.Message)
		}
	}, func(c *supervise.Config) { c.Runtime = &yielding{world: w} })
}

// TestStopsWhatTurnsOutNotToSleep: an adopted runtime was started without the sleep mode that its adapter assumes.
func TestStopsWhatTurnsOutNotToSleep(t *testing.T) {
	w := &world{traits: runtime.Traits{Sleeps: true}, sleepErr: fmt.Errorf("no such mode: %w", errors.ErrUnsupported)}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		wantStates(t, w, "draining asleep2")
		if st := s.Status(); !strings.Contains(st.Message, "no such mode") {
			t.Errorf("the state says %q", st.Message)
		}
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "sleep 1", "stop 100 after 5s", "start 101")
	})
}
