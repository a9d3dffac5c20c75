package supervise_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/supervise"
)

func canary(c *supervise.Config) { c.Canary = true }

// The first sleep asks twice, the wake compares and asks no more.
func TestCanaryAgrees(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		for epoch := uint64(2); epoch < 6; epoch += 2 {
			wantCode(t, "sleep", sleep(s, epoch, 1, 0), "")
			wantCode(t, "wake", wake(s, epoch+1), "")
		}
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "sleep 1", "wake from 1")
		if got := s.Status().CanaryMismatches; got != 0 {
			t.Errorf("%d mismatches", got)
		}
	}, canary)
}

// Weights that did not come back: the wake goes on by a fresh start, which forgets.
func TestCanaryDiffers(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!", "!!", "new"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		w.states()
		woken := later(func() error { return wake(s, 3) })
		synctest.Wait()
		if st := s.Status(); st.State != api.Unhealthy || st.CanaryMismatches != 1 || !strings.Contains(st.Message, `said "good" then and says "!!" now`) {
			t.Errorf("%+v: want unhealthy, with both answers", st)
		}
		wantCode(t, "wake", <-woken, "")
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "canary", "stop 100 after 0s", "start 101")
		wantStates(t, w, "starting(waking) unhealthy "+comesUp)
		wantCode(t, "sleep", sleep(s, 4, 1, 0), "")
		wantCode(t, "wake", wake(s, 5), "")
		wantCalls(t, w, "canary", "canary", "sleep 1", "wake from 1")
		if st := s.Status(); st.State != api.Awake || st.CanaryMismatches != 1 || st.Restarts != 1 {
			t.Errorf("%+v: want awake after one mismatch and one restart", st)
		}
	}, canary)
}

// Who can read its weights in place is not started again where that helps.
func TestCanaryReloads(t *testing.T) {
	w := &world{traits: inPlace, reloads: true, rise: second, answers: []string{"good", "good", "!!", "!!", "good"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		w.states()
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "canary", "reload", "canary")
		wantStates(t, w, "starting(waking) awake")
		if st := s.Status(); st.CanaryMismatches != 1 || st.Restarts != 0 {
			t.Errorf("%+v: want one mismatch and no restart", st)
		}
	}, canary)
	w = &world{traits: inPlace, reloads: true, answers: []string{"good", "good", "!!"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "canary", "reload", "canary", "stop 100 after 0s", "start 101")
	}, canary)
}

// An adapter that a wake has lost is not served: its own answers are compared too, all that were loaded before the sleep.
func TestCanaryOfAdapters(t *testing.T) {
	for name, tt := range map[string]struct {
		says       []string // of the adapter b: twice before the first sleep, then after it
		reloads    bool
		calls      []string // of the wake
		mismatches int
	}{
		"the same":           {[]string{"b", "b", "b"}, true, []string{"canary of b"}, 0},
		"wrong once":         {[]string{"b", "b", "base", "b"}, true, []string{"canary of b", "canary of b"}, 0},
		"lost, reloaded":     {[]string{"b", "b", "base", "base", "b"}, true, []string{"canary of b", "canary of b", "reload", "canary of b"}, 1},
		"lost, restarts":     {[]string{"b", "b", "base"}, false, []string{"canary of b", "canary of b", "stop 100 after 0s", "start 101"}, 1},
		"not the same twice": {[]string{"b", "c", "d"}, false, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{traits: inPlace, reloads: tt.reloads, answers: []string{"good"}, adapters: map[api.ModelName][]string{"b": tt.says}}
			since := time.Now()
			run(t, w, func(t *testing.T, s *supervise.Supervisor) {
				wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
				wantCode(t, "wake", wake(s, 3), "")
				wantCalls(t, w, slices.Concat([]string{"start 100", "canary", "canary", "canary of b", "canary of b", "sleep 1", "wake from 1"}, tt.calls)...)
				if st := s.Status(); st.State != api.Awake || st.CanaryMismatches != tt.mismatches {
					t.Errorf("%+v: want awake after %d mismatches", st, tt.mismatches)
				}
			}, canary, func(c *supervise.Config) {
				c.Adapters = func() map[api.ModelName]time.Time { return map[api.ModelName]time.Time{"b": since} }
			})
		})
	}
}

// What an adapter of the same name said that is not there any more counts for nothing, and what it says is known after the next sleep only.
func TestCanaryOfAnotherAdapter(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}, adapters: map[api.ModelName][]string{"b": {"b", "b", "other"}}}
	var since atomic.Int64
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		since.Store(1) // registered anew while it sleeps
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "canary", "canary", "canary of b", "canary of b", "sleep 1", "wake from 1")
		wantCode(t, "sleep", sleep(s, 4, 1, 0), "")
		wantCode(t, "wake", wake(s, 5), "")
		wantCalls(t, w, "canary of b", "canary of b", "sleep 1", "wake from 1", "canary of b")
		w.set(func() { w.adapterErr = errors.New("no") })
		wantCode(t, "sleep", sleep(s, 6, 1, 0), "")
		wantCode(t, "wake", wake(s, 7), "")
		wantCalls(t, w, "sleep 1", "wake from 1", "canary of b", "stop 100 after 0s", "start 101")
	}, canary, func(c *supervise.Config) {
		c.Adapters = func() map[api.ModelName]time.Time {
			return map[api.ModelName]time.Time{"b": time.Unix(since.Load(), 0)}
		}
	})
}

// Who waits at the gate for the wake gets to no model that has not answered the canary as before.
func TestNobodyGetsInBeforeTheCanary(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!", "!!", "new"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		entered := later(func() error {
			if _, _, _, refused := s.Gate().EnterBehind(t.Context(), control.MostWait); refused != nil {
				return refused
			}
			return nil
		})
		wantCode(t, "wake", wake(s, 3), "")
		wantCode(t, "what came behind the wake", <-entered, api.CodeUnhealthy)
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "canary", "stop 100 after 0s", "start 101")
	}, canary)
}

// One wrong answer may be an accident.
func TestCanaryDiffersOnce(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!", "good"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 2, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 2", "wake from 2", "canary")
	}, canary)
}

// Whoever answered wrongly, and then says nothing to the canary, has not shown that it is well.
func TestCanaryDiffersAndIsSilent(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!", ""}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "canary", "stop 100 after 0s", "start 101")
		if st := s.Status(); st.State != api.Awake || st.CanaryMismatches != 1 {
			t.Errorf("%+v: want awake by a new start, after one mismatch", st)
		}
	}, canary)
}

// A model that answers differently anyway is not judged by it, nor is one that did not answer.
func TestCanaryNotDeterministic(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"a", "b", "c"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		for epoch := uint64(2); epoch < 6; epoch += 2 {
			wantCode(t, "sleep", sleep(s, epoch, 1, 0), "")
			wantCode(t, "wake", wake(s, epoch+1), "")
		}
		wantCalls(t, w, "start 100", "canary", "canary", "sleep 1", "wake from 1", "sleep 1", "wake from 1")
	}, canary)
	w = &world{traits: inPlace, answers: []string{"a", "b", "c"}, canaryErr: errors.New("no")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 100", "canary", "sleep 1", "wake from 1")
	}, canary)
}

// A sleeper that can't be asked is not asked when it goes deeper.
func TestCanaryDeeper(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}, canaryErr: errors.New("no")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "sleep", sleep(s, 3, 2, 0), "")
		wantCalls(t, w, "start 100", "canary", "sleep 1", "sleep 2")
	}, canary)
}

// Who adopts a sleeper knows what it should answer.
func TestCanaryIsLeft(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good", "good", "!!"}, canary: true}
	succeed(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
	}, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "wake from 1", "canary", "stop 100 after 0s", "start 101")
		if got := s.Status().CanaryMismatches; got != 1 {
			t.Errorf("%d mismatches, want 1", got)
		}
	})
}

// A sidecar is not ours to start again: it is not awake before it answers as it did,
// or has gone.
func TestCanaryOfASidecar(t *testing.T) {
	w := &world{attach: true, traits: inPlace, answers: []string{"good", "good", "!!"}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		woken := later(func() error { return wake(s, 3) })
		if err := <-woken; err == nil || !strings.Contains(err.Error(), "restart its container") {
			t.Errorf("wake: %v, want what to do", err)
		}
		w.set(func() { w.answers = []string{"good"} })
		wantCode(t, "wake", wake(s, 4), "")
		if st := s.Status(); st.State != api.Awake || st.CanaryMismatches != 1 {
			t.Errorf("%+v: want awake after one mismatch", st)
		}
	}, canary)
}
