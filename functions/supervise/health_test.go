package supervise_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// Requests run, none makes progress, and a probe gets no answer either.
func TestHangsUnderLoad(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		_, _ = s.Gate().Enter()
		w.set(func() { w.hangs = true })
		time.Sleep(60 * second) // two checks: a request may be new at the first one
		wantStates(t, w, "awake")
		time.Sleep(31 * second)
		wantStates(t, w, "unhealthy "+comesUp)
		wantCalls(t, w, "start 100", "stop 100 after 0s", "start 101")
		s.Gate().Leave()
	})
}

// TestNotReady: a readiness probe that fails after the start only stops requests, until it succeeds again.
func TestNotReady(t *testing.T) {
	w := &world{traits: runtime.Traits{Readiness: true}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		w.set(func() { w.probeErr = errors.New("status 500") })
		time.Sleep(11 * second) // the first to fail
		if _, refused := s.Gate().Enter(); refused != nil {
			t.Errorf("after one failure: %v", refused)
		}
		time.Sleep(2 * second) // three in a row, though a request runs and makes progress
		_, refused := s.Gate().Enter()
		if wantCode(t, "a request", refused, api.CodeUnhealthy); refused.RetryAfter == 0 {
			t.Error("nothing says when to come again")
		}
		if _, refused := s.Gate().EnterProbe(); refused != nil {
			t.Errorf("a probe: %v", refused)
		}
		time.Sleep(time.Hour)
		wantStates(t, w, "awake")
		wantCalls(t, w, "start 100")
		w.set(func() { w.probeErr = nil })
		time.Sleep(2 * second)
		s.Gate().Leave()
		if _, refused := s.Gate().Enter(); refused != nil {
			t.Errorf("ready again: %v", refused)
		}
		s.Gate().Leave()
		s.Gate().Leave()
	})
}

// Clients that give up and come again hide no hang.
func TestHangsUnderImpatientClients(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.set(func() { w.hangs = true })
		for range 200 {
			_, refused := s.Gate().Enter()
			time.Sleep(second)
			if refused == nil {
				s.Gate().Leave()
			}
		}
		if got := w.states(); !strings.Contains(got, "unhealthy") {
			t.Errorf("states %s, want unhealthy among them", got)
		}
	})
}

// A probe that waits behind answered requests proves nothing.
func TestSaturatedIsNoHang(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		w.set(func() { w.hangs = true })
		_, _ = s.Gate().Enter()
		_, _ = s.Gate().Enter()
		for range 100 {
			time.Sleep(50 * second) // longer than the interval, shorter than the interval plus a probe
			s.Gate().Moved()
		}
		wantStates(t, w, "awake")
		s.Gate().Leave()
		s.Gate().Leave()
	})
}

// counted is a runtime that counts tokens.
type counted struct {
	*world
	tokens func() float64
}

func (c counted) Signals(context.Context, api.Endpoint) (runtime.Signals, error) {
	return runtime.Signals{GeneratedTokens: c.tokens()}, nil
}

// An answer without a stream has no parts: the runtime's own counters show progress.
func TestCountersProveLife(t *testing.T) {
	w := &world{}
	moves := true
	began := time.Now()
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		began = time.Now()
		w.set(func() { w.hangs = true })
		_, _ = s.Gate().Enter()
		time.Sleep(time.Hour)
		wantStates(t, w, "awake")
		w.set(func() { moves = false })
		time.Sleep(3 * time.Minute)
		if got := w.states(); !strings.HasPrefix(got, "awake unhealthy") && !strings.HasPrefix(got, "unhealthy") {
			t.Errorf("states %s, want unhealthy", got)
		}
		s.Gate().Leave()
	}, func(c *supervise.Config) {
		c.Runtime = counted{w, func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			if moves {
				return time.Since(began).Seconds()
			}
			return 5
		}}
	})
}

// computing is a process that uses a processor.
type computing struct{ supervise.Child }

var born = time.Now()

func (computing) CPU() (time.Duration, error) { return time.Since(born), nil }

// Without counters, a process that computes is tolerated for a while.
func TestComputingIsBelievedForAWhile(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		w.set(func() { w.hangs = true })
		_, _ = s.Gate().Enter()
		time.Sleep(9 * time.Minute)
		wantStates(t, w, "awake")
		time.Sleep(3 * time.Minute)
		if got := w.states(); !strings.HasPrefix(got, "unhealthy") {
			t.Errorf("states %s, want unhealthy after ten probes", got)
		}
		s.Gate().Leave()
	}, func(c *supervise.Config) {
		c.Start = func(spec process.Spec) (supervise.Child, error) {
			child, err := w.start(spec)
			return computing{child}, err
		}
	})
}

// TestIdleHang: two unanswered probes in a row end an idle runtime, one does not. A runtime that computes is tolerated for longer: on a
// busy machine its probe may wait for a processor.
func TestIdleHang(t *testing.T) {
	for _, computes := range []bool{false, true} {
		w := &world{}
		run(t, w, func(t *testing.T, s *supervise.Supervisor) {
			w.states()
			w.set(func() { w.hangs = true })
			time.Sleep(61 * second)
			wantStates(t, w, "awake")
			w.set(func() { w.hangs = false })
			time.Sleep(10 * time.Minute)
			w.set(func() { w.hangs = true })
			if computes {
				time.Sleep(150 * second)
				wantStates(t, w, "")
			}
			time.Sleep(150 * second)
			wantStates(t, w, "unhealthy "+comesUp)
		}, func(c *supervise.Config) {
			if computes {
				c.Start = func(spec process.Spec) (supervise.Child, error) {
					child, err := w.start(spec)
					return computing{child}, err
				}
			}
		})
	}
}

// A refusal under load is an answer; a refused connection is not.
func TestRefusedProbe(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		_, _ = s.Gate().Enter()
		w.set(func() { w.probeErr = errors.New("429: the queue is full") })
		time.Sleep(10 * time.Minute)
		wantStates(t, w, "awake")
		w.set(func() { w.probeErr = syscall.ECONNREFUSED })
		time.Sleep(time.Minute)
		w.set(func() { w.probeErr = nil })
		wantCode(t, "wake", wake(s, 1), "")
		wantStates(t, w, "unhealthy "+comesUp)
		s.Gate().Leave()
	})
}
