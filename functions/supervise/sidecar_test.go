package supervise_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

func TestSidecar(t *testing.T) {
	w := &world{attach: true, load: 5 * second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 1), "")
		wantStates(t, w, comesUp)
		if st := s.Status(); st.PID != 0 || st.LoadTime != 5*second {
			t.Errorf("PID %d, load time %v; want none, 5s", st.PID, st.LoadTime)
		}
		err := sleep(s, 2, 1, 0)
		wantCode(t, "sleep", err, api.CodeUnsupported)
		if st := s.Status(); api.AsError(err).Status != 409 || st.State != api.Awake {
			t.Errorf("%v, %s: want 409 and awake", err, st.State)
		}
		_, _ = s.Gate().Enter()
		began := time.Now()
		if _, err := s.Stop(t.Context(), control.StopRequest{Drain: 3 * second}); err != nil || time.Since(began) != 3*second {
			t.Errorf("Stop: %v after %v, want none after the drain", err, time.Since(began))
		}
		s.Gate().Leave()
		wantCalls(t, w) // nothing was started or stopped
	})
}

// An unreachable sidecar is awaited for any time.
func TestSidecarIsLost(t *testing.T) {
	w := &world{attach: true}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		w.set(func() { w.probeErr = fmt.Errorf("dial: %w", syscall.ECONNREFUSED) })
		_, _ = s.Gate().Enter()
		s.Gate().Unreachable() // a request got no connection
		s.Gate().Leave()
		wantStates(t, w, "unhealthy")
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeUnhealthy || refused.RetryAfter == 0 {
			t.Errorf("refused with %+v, want unhealthy with a time", refused)
		}
		time.Sleep(time.Hour)
		if st := s.Status(); st.State == api.Awake || st.Restarts != 1 {
			t.Errorf("%s with %d restarts: want it awaited, and one loss counted", st.State, st.Restarts)
		}
		w.set(func() { w.probeErr = nil })
		wantCode(t, "wake", wake(s, 1), "")
		if st := s.Status(); st.Restarts != 1 || st.Message != "" {
			t.Errorf("restarts %d, message %q; want 1, none", st.Restarts, st.Message)
		}
		wantCalls(t, w)
	})
}

func TestSidecarSleepsInPlace(t *testing.T) {
	w := &world{attach: true, traits: runtime.Traits{Sleeps: true}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "deepen", sleep(s, 2, 2, 0), api.CodeUnsupported)
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "sleep 1", "wake from 1")
	})
}

// A missing sidecar can't be asleep: the sleep waits until it is back.
func TestSidecarSleepsWhenItIsBack(t *testing.T) {
	w := &world{attach: true, traits: inPlace, probeErr: errors.New("still loading")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		slept := later(func() error { return sleep(s, 2, 1, 0) })
		time.Sleep(25 * time.Minute)
		if st := s.Status(); st.State == api.Asleep {
			t.Error("asleep without having been there")
		}
		w.set(func() { w.probeErr = nil })
		wantCode(t, "sleep", <-slept, "")
		wantCalls(t, w, "sleep 1")
	})
}
