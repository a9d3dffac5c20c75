package supervise_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/supervise"
)

func early(c *supervise.Config) { c.Canary, c.Early = true, func() bool { return true } }

// entry is the result of a request that came with a wake.
type entry struct {
	inside    context.Context
	validated func() *api.Error
	refused   *api.Error
	after     time.Duration // how long it waited
}

// behind sends a request just before a wake, and returns when it waits.
func behind(t *testing.T, s *supervise.Supervisor) <-chan entry {
	t.Helper()
	began, in := time.Now(), make(chan entry, 1)
	go func() {
		_, inside, validated, refused := s.Gate().EnterBehind(t.Context(), control.MostWait)
		in <- entry{inside, validated, refused, time.Since(began)}
	}()
	synctest.Wait()
	return in
}

// A request with a wake is admitted as soon as the runtime accepts requests, and validated when the canary has been answered. Others are
// not admitted before.
func TestValidation(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}, rise: time.Second, shows: 2 * time.Second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		in := behind(t, s)
		began := time.Now()
		woken := later(func() error { return wake(s, 3) })
		e := <-in
		if e.refused != nil || e.validated == nil || e.after != time.Second {
			t.Fatalf("%+v: want it in speculatively after 1 s", e)
		}
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeLoading {
			t.Errorf("another one: %v, want it refused", refused)
		}
		if refused := e.validated(); refused != nil || time.Since(began) != 3*time.Second {
			t.Errorf("validated after %s: %v, want a good one after 3 s", time.Since(began), refused)
		}
		wantCode(t, "wake", <-woken, "")
		if running, _ := s.Gate().Running(); running != 1 || e.inside.Err() != nil {
			t.Errorf("%d run (%v), want the speculative one", running, e.inside.Err())
		}
		slept := later(func() error { return sleep(s, 4, 1, time.Minute) })
		synctest.Wait()
		if st := s.Status(); st.State != api.Draining {
			t.Errorf("%s, want it to wait for the speculative request", st.State)
		}
		s.Gate().Leave()
		wantCode(t, "sleep", <-slept, "")
	}, early)
}

// Answers from damaged weights are thrown away, and the canary is asked again when nothing else runs any more.
func TestValidationFails(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!", "!!", "new"}, shows: time.Second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		in := behind(t, s)
		woken := later(func() error { return wake(s, 3) })
		e := <-in
		if e.refused != nil || e.validated == nil {
			t.Fatalf("%+v: want it in speculatively", e)
		}
		if refused := e.validated(); refused == nil || refused.Code != api.CodeUnhealthy {
			t.Errorf("validated: %v, want %s", refused, api.CodeUnhealthy)
		}
		if e.inside.Err() == nil {
			t.Error("it still runs in the runtime")
		}
		for range 100 { // asked when both have happened
			if refused := e.validated(); refused == nil {
				t.Fatal("the outcome is forgotten where the request was cut off")
			}
		}
		time.Sleep(10 * time.Second)
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1")
		s.Gate().Leave()
		wantCode(t, "wake", <-woken, "")
		wantCalls(t, w, "canary", "stop 100 after 0s", "start 101")
	}, early)
}

// One wrong answer beside a request sends the request elsewhere, and does not harm the instance.
func TestValidationFailsOnce(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!", "good"}, shows: time.Second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		in := behind(t, s)
		woken := later(func() error { return wake(s, 3) })
		if refused := (<-in).validated(); refused == nil {
			t.Error("a wrong answer was validated")
		}
		s.Gate().Leave()
		wantCode(t, "wake", <-woken, "")
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "canary")
	}, early)
}

// However a wake ends, a speculative request gets an outcome.
func TestValidationEnds(t *testing.T) {
	for name, end := range map[string]func(*world, *supervise.Supervisor){
		"the process ends": func(w *world, _ *supervise.Supervisor) { w.children[0].end("exit status 1") },
		"a stop": func(_ *world, s *supervise.Supervisor) {
			go func() { _, _ = s.Stop(context.Background(), control.StopRequest{}) }()
		},
		"it takes too long": func(*world, *supervise.Supervisor) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{traits: inPlace, answers: []string{"good"}, shows: time.Hour}
			run(t, w, func(t *testing.T, s *supervise.Supervisor) {
				wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
				in := behind(t, s)
				go func() { _ = wake(s, 3) }()
				e := <-in
				end(w, s)
				if refused := e.validated(); refused == nil || e.inside.Err() == nil {
					t.Errorf("validated %v (%v), want it cut off", refused, e.inside.Err())
				}
				s.Gate().Leave()
			}, early)
		})
	}
}

// If something must be loaded after a wake, no request is admitted before.
func TestNoValidationBeforeWhatIsRestored(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}, shows: time.Second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		in := behind(t, s)
		wantCode(t, "wake", wake(s, 3), "")
		if e := <-in; e.refused != nil || e.validated != nil || e.after != time.Second {
			t.Errorf("%+v: want it in, not speculative, after 1 s", e)
		}
		s.Gate().Leave()
	}, early, func(c *supervise.Config) { c.Early = func() bool { return false } })
}

// A wake is reported while it is under way only if it takes a moment.
func TestReportOfAWake(t *testing.T) {
	for rise, want := range map[time.Duration]string{
		time.Millisecond:      "awake",
		20 * time.Millisecond: "starting(waking) awake",
	} {
		w := &world{traits: inPlace, rise: rise}
		run(t, w, func(t *testing.T, s *supervise.Supervisor) {
			wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
			synctest.Wait() // its memory has been measured
			w.states()
			wantCode(t, "wake", wake(s, 3), "")
			wantStates(t, w, want)
		})
	}
}
