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

// Damaged weights: the wake continues with a fresh start, which discards the known answers.
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

// A runtime that can reload its weights in place is not restarted if that helps.
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

// An adapter that a wake has lost is not served: the answers of all adapters that were loaded before the sleep are compared too.
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

// The answer of a removed adapter does not count for a new one of the same name, whose answer is learnt at the next sleep.
func TestCanaryOfAnotherAdapter(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}, adapters: map[api.ModelName][]string{"b": {"b", "b", "other"}}}
	var since atomic.Int64
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		since.Store(1) // registered again while it sleeps
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

// Requests that wait for the wake are not admitted before the model has answered the canary as before.
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

// A runtime that answered wrongly and then does not answer has not shown that it is well.
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

// A model that is not deterministic is not judged, nor is one that did not answer.
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

// A sleeping runtime can't answer, so it is not asked when its sleep deepens.
func TestCanaryDeeper(t *testing.T) {
	w := &world{traits: inPlace, answers: []string{"good"}, canaryErr: errors.New("no")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "sleep", sleep(s, 3, 2, 0), "")
		wantCalls(t, w, "start 100", "canary", "sleep 1", "sleep 2")
	}, canary)
}

// A supervisor that adopts a sleeping runtime knows the expected answer.
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

// We can't restart a sidecar: it counts as awake only after it answers as before, or has restarted.
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
