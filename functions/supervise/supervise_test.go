package supervise_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

func TestSleepsAndWakesInPlace(t *testing.T) {
	w := &world{traits: inPlace, load: 3 * second, rise: 2 * second, fall: second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeLoading {
			t.Errorf("while it starts: %v, want loading", refused)
		}
		time.Sleep(4 * second)
		wantStates(t, w, comesUp)
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeAsleep {
			t.Errorf("while it sleeps: %v, want asleep", refused)
		}
		wantCode(t, "sleep again", sleep(s, 2, 1, 0), "")
		wantCode(t, "deepen", sleep(s, 2, 2, 0), "")
		wantCode(t, "shallower", sleep(s, 2, 1, 0), "")
		wantCode(t, "wake", wake(s, 3), "")
		wantCode(t, "wake again", wake(s, 3), "")
		wantStates(t, w, "draining asleep1 asleep2 starting(waking) awake")
		wantCalls(t, w, "start 100", "sleep 1", "sleep 2", "wake from 2")
		st := s.Status()
		if st.LoadTime != 3*second || st.SleepTime != second || st.WakeTime != 2*second || st.Epoch != 3 || st.Restarts != 0 {
			t.Errorf("status %+v: want load 3s, sleep 1s, wake 2s, epoch 3, no restart", st)
		}
		if base, refused := s.Gate().Enter(); refused != nil || base != "http://runtime" {
			t.Errorf("Enter = %q, %v; want the runtime's URL", base, refused)
		}
		s.Gate().Leave()
	})
}

func TestSleepByStop(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		if st := s.Status(); st.Level != api.Level2 || st.PID != 0 || st.Memory.Host != 0 {
			t.Errorf("asleep without a process: %+v, want level 2, no PID, no memory", st)
		}
		w.set(func() { w.load = 5 * second })
		wantCode(t, "wake", wake(s, 3), "")
		wantStates(t, w, comesUp+" draining asleep2 "+comesUp)
		wantCalls(t, w, "start 100", "stop 100 after 5s", "start 101")
		if st := s.Status(); st.WakeTime != 5*second || st.Restarts != 0 {
			t.Errorf("wake time %v, restarts %d; want 5s, 0: a wake is no restart", st.WakeTime, st.Restarts)
		}
	})
}

// vLLM can't go from level 1 to 2 without a wake, which would take the memory back.
func TestDeepensByStop(t *testing.T) {
	w := &world{traits: runtime.Traits{Sleeps: true}}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "deepen", sleep(s, 3, 2, 0), "")
		wantCalls(t, w, "start 100", "sleep 1", "stop 100 after 5s")
		if st := s.Status(); st.State != api.Asleep || st.Level != api.Level2 {
			t.Errorf("%s %d, want asleep 2", st.State, st.Level)
		}
	})
}

func TestEpochs(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "older than the first", sleep(s, 0, 1, 0), api.CodeStaleEpoch)
		wantCode(t, "sleep 5", sleep(s, 5, 1, 0), "")
		wantCode(t, "wake 4", wake(s, 4), api.CodeStaleEpoch)
		_, err := s.Wake(t.Context(), api.Grant{Instance: "other", Epoch: 9})
		wantCode(t, "another's grant", err, api.CodeStaleEpoch)
		if st := s.Status(); st.Epoch != 5 || st.State != api.Asleep {
			t.Errorf("epoch %d, %s; want 5, asleep: what is refused leaves no trace", st.Epoch, st.State)
		}
		wantCode(t, "wake 5", wake(s, 5), "")
		if err := sleep(s, 6, 4, 0); err == nil || api.AsError(err).Status != http.StatusBadRequest {
			t.Errorf("level 4: %v, want 400", err)
		}
	})
}

func TestDrain(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		for range 2 {
			if _, refused := s.Gate().Enter(); refused != nil {
				t.Fatal(refused)
			}
		}
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeBusy {
			t.Errorf("the third of two: %v, want busy", refused)
		}
		w.states()

		began := time.Now()
		wantCode(t, "drain that expires", sleep(s, 2, 1, 3*second), api.CodeBusy)
		if d := time.Since(began); d != 3*second {
			t.Errorf("drained for %v, want 3s", d)
		}
		wantStates(t, w, "draining awake")

		slept := later(func() error { return sleep(s, 3, 1, 0) })
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeDraining {
			t.Errorf("while it drains: %v, want draining", refused)
		}
		s.Gate().Leave()
		synctest.Wait()
		wantStates(t, w, "draining")
		s.Gate().Leave()
		wantCode(t, "drain that ends", <-slept, "")
		wantStates(t, w, "asleep1")
	})
}

func TestWakeOvertakesDrain(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_, _ = s.Gate().Enter()
		w.states()
		slept := later(func() error { return sleep(s, 2, 1, 0) })
		wantCode(t, "older wake", wake(s, 1), api.CodeStaleEpoch)
		wantCode(t, "wake", wake(s, 3), "")
		wantCode(t, "sleep", <-slept, api.CodeStaleEpoch)
		wantStates(t, w, "draining awake")
		wantCalls(t, w, "start 100")
		s.Gate().Leave()
	})
}

func TestWakeAfterTheRuntimeWasToldToSleep(t *testing.T) {
	w := &world{traits: inPlace, rise: second, fall: 2 * second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		slept := later(func() error { return sleep(s, 2, 1, 0) })
		woken := later(func() error { return wake(s, 3) })
		wantCode(t, "sleep", <-slept, "")
		wantCode(t, "wake", <-woken, "")
		wantStates(t, w, "draining asleep1 starting(waking) awake")
	})
}

func TestSleepDuringAStartWaits(t *testing.T) {
	w := &world{traits: inPlace, load: 5 * second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		woken := later(func() error { return wake(s, 1) })
		slept := later(func() error { return sleep(s, 2, 1, second) })
		wantCode(t, "wake", <-woken, "")
		wantCode(t, "sleep", <-slept, "")
		wantStates(t, w, comesUp+" draining asleep1")
	})
}

func TestManyWakesAreOne(t *testing.T) {
	w := &world{traits: inPlace, rise: second}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		w.made()
		var woken []<-chan error
		for range 20 {
			woken = append(woken, later(func() error { return wake(s, 2) }))
		}
		for _, c := range woken {
			wantCode(t, "wake", <-c, "")
		}
		wantCalls(t, w, "wake from 1")
	})
}

// A caller that leaves during the drain ends it, since nobody wants the sleep any more.
func TestSleeperLeaves(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_, _ = s.Gate().Enter()
		w.states()
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		if _, err := s.Sleep(ctx, control.SleepRequest{Level: 1, Epoch: 2}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sleep: %v, want the context's error", err)
		}
		wantStates(t, w, "draining awake")
		s.Gate().Leave()
	})
}

func TestCrashRestarts(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		began := time.Now()
		w.children[0].end("signal: segmentation fault")
		synctest.Wait()
		st := s.Status()
		if st.State != api.Unhealthy || !strings.Contains(st.Message, "segmentation fault") || !strings.Contains(st.Message, "a line of output") {
			t.Errorf("status %+v: want unhealthy with the exit and the output", st)
		}
		if _, refused := s.Gate().Enter(); refused == nil || refused.Code != api.CodeUnhealthy {
			t.Errorf("Enter: %v, want unhealthy", refused)
		}
		wantCode(t, "wake", wake(s, 1), "")
		if d := time.Since(began); d < 100*time.Millisecond || d > 110*time.Millisecond {
			t.Errorf("awake after %v, want 100ms", d)
		}
		wantStates(t, w, "unhealthy "+comesUp)
		if st := s.Status(); st.Restarts != 1 || st.Message != "" {
			t.Errorf("restarts %d, message %q; want 1, none", st.Restarts, st.Message)
		}
		// The pause doubles, and starts over once it was awake for longer.
		for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond} {
			began = time.Now()
			w.children[len(w.children)-1].end("signal: killed")
			synctest.Wait()
			wantCode(t, "wake", wake(s, 1), "")
			if d := time.Since(began); d < want || d > want+10*time.Millisecond {
				t.Errorf("awake after %v, want %v", d, want)
			}
		}
		time.Sleep(401 * time.Millisecond)
		began = time.Now()
		w.children[len(w.children)-1].end("signal: killed")
		synctest.Wait()
		wantCode(t, "wake", wake(s, 1), "")
		if d := time.Since(began); d > 110*time.Millisecond {
			t.Errorf("awake after %v, want 100ms", d)
		}
	})
}

func TestGivesUpAfterThreeStarts(t *testing.T) {
	w := &world{exits: true}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		err := wake(s, 1)
		wantCode(t, "wake", err, api.CodeStartFailed)
		if !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "a line of output") {
			t.Errorf("error %q, want the exit status and the output in it", err)
		}
		time.Sleep(time.Hour)
		wantCalls(t, w, "start 100", "start 101", "start 102")
		const fails = "starting(starting runtime) starting(loading) unhealthy"
		wantStates(t, w, strings.Join([]string{fails, fails, fails}, " "))
		w.set(func() { w.exits = false })
		wantCode(t, "wake", wake(s, 1), "")
	})
}

// TestServerGivesUpForABusyMachine: such starts are repeated without a word, and not without end. A later wake tries again.
func TestServerGivesUpForABusyMachine(t *testing.T) {
	w := &world{exits: true, prints: "Exception: The current node timed out during startup. This could happen because some of the raylet failed to startup or the GCS has become overloaded."}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		err := wake(s, 1)
		wantCode(t, "wake", err, api.CodeStartFailed)
		if starts, states := len(w.children), w.states(); starts != 10 || strings.Count(states, "unhealthy") != 3 {
			t.Errorf("%d starts, want 10, three of which are reported as failures: %s", starts, states)
		}
		w.set(func() { w.exits = false })
		wantCode(t, "wake", wake(s, 1), "")
	})
}

func TestProgramIsMissing(t *testing.T) {
	w := &world{startErr: errors.New("start srv: no such file")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		err := wake(s, 1)
		wantCode(t, "wake", err, api.CodeStartFailed)
		if !strings.Contains(err.Error(), "no such file") {
			t.Errorf("error %q, want the reason", err)
		}
	})
}

func TestNeverReady(t *testing.T) {
	w := &world{probeErr: errors.New("still loading")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(10*time.Minute + second)
		wantCalls(t, w, "start 100", "stop 100 after 0s", "start 101")
		w.set(func() { w.probeErr = nil })
		wantCode(t, "wake", wake(s, 1), "")
		if got := w.states(); !strings.Contains(got, "unhealthy") {
			t.Errorf("states %s, want unhealthy among them", got)
		}
	})
}

func TestSleepEndsMisery(t *testing.T) {
	w := &world{exits: true, traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_ = wake(s, 1)
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		if st := s.Status(); st.State != api.Asleep || st.Level != api.Level2 || st.PID != 0 {
			t.Errorf("%+v: want asleep at level 2 without a process", st)
		}
		w.set(func() { w.exits = false })
		wantCode(t, "wake", wake(s, 2), "")
	})
}

func TestDiesAsleep(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		w.states()
		w.children[0].end("signal: killed")
		wantStates(t, w, "asleep2") // not restarted: nobody granted the memory
		w.made()
		wantCode(t, "wake", wake(s, 2), "")
		wantCalls(t, w, "start 101")
	})
}

func TestWakeFails(t *testing.T) {
	w := &world{traits: inPlace, wakeErr: errors.New("out of memory")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		w.made()
		w.states()
		wantCode(t, "wake", wake(s, 2), "") // by a fresh start
		wantCalls(t, w, "wake from 1", "stop 100 after 0s", "start 101")
		wantStates(t, w, "starting(waking) unhealthy "+comesUp)
	})
}

func TestSleepFails(t *testing.T) {
	w := &world{traits: inPlace, sleepErr: errors.New("no")}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		wantCode(t, "sleep", sleep(s, 2, 2, 0), api.CodeRuntimeFailed)
		wantStates(t, w, "draining starting(waking) awake")
		wantCalls(t, w, "start 100", "sleep 2", "wake from 2")
	})
}

func TestHang(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.states()
		w.made()
		time.Sleep(10 * time.Minute) // healthy: probes pass
		w.set(func() { w.hangs = true })
		_, _ = s.Gate().Enter() // a request is being answered: no probe may condemn the runtime
		for range 60 {
			time.Sleep(10 * second)
			s.Gate().Moved()
		}
		s.Gate().Leave()
		wantCalls(t, w)
		time.Sleep(151 * second) // a check that sees the last part, then two that see none, and the probe
		wantStates(t, w, "awake unhealthy "+comesUp)
		wantCalls(t, w, "stop 100 after 0s", "start 101")
	})
}

// A sleep does not wait for a health probe that hangs.
func TestSleepCancelsProbe(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		w.set(func() { w.hangs = true })
		time.Sleep(31 * second)
		began := time.Now()
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		if d := time.Since(began); d != 0 {
			t.Errorf("sleep took %v, want no time", d)
		}
	})
}

func TestNoProbeAsleep(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		w.set(func() { w.hangs = true })
		w.states()
		time.Sleep(time.Hour)
		if got := w.states(); strings.Contains(got, "unhealthy") {
			t.Errorf("states %s while asleep", got)
		}
	})
}

func TestStop(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_, _ = s.Gate().Enter()
		slept := later(func() error { return sleep(s, 2, 1, 0) })
		began := time.Now()
		st, err := s.Stop(t.Context(), control.StopRequest{Drain: 2 * second})
		if err != nil || st.State != api.Gone || time.Since(began) != 2*second {
			t.Errorf("Stop: %s, %v after %v; want gone after 2s", st.State, err, time.Since(began))
		}
		wantCode(t, "the sleep", <-slept, api.CodeShutdown)
		wantCode(t, "a wake", wake(s, 9), api.CodeShutdown)
		if _, err := s.Stop(t.Context(), control.StopRequest{}); err != nil {
			t.Errorf("a second Stop: %v", err)
		}
		wantCalls(t, w, "start 100", "stop 100 after 5s")
		s.Gate().Leave()
	})
}

// Stop overrides a start, and the end of ctx overrides a stop.
func TestStopDuringAStart(t *testing.T) {
	w := &world{load: time.Hour}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		woken := later(func() error { return wake(s, 1) })
		if _, err := s.Stop(t.Context(), control.StopRequest{}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "wake", <-woken, api.CodeShutdown)
		wantStates(t, w, "starting(starting runtime) starting(loading) gone")
	})
}

func TestMemoryIsReported(t *testing.T) {
	w := &world{traits: inPlace}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(2 * second)
		synctest.Wait()
		if got := s.Status().Shared; got != weights {
			t.Errorf("it has %+v in common with others, want %+v", got, weights)
		}
		if got := s.Status().Memory.Host; got != api.MiB {
			t.Errorf("memory %v a second after it is awake, want 1 MiB", got)
		}
	})
}

// Leave is called for a runtime that has answered before it sleeps or is ended, but not for a sleeping one.
func TestLeave(t *testing.T) {
	w := &world{traits: runtime.Traits{Sleeps: true, Deepens: true}}
	var looked []string
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
		wantCode(t, "a deeper sleep", sleep(s, 3, 2, 0), "")
		wantCode(t, "wake", wake(s, 4), "")
		if len(looked) != 1 {
			t.Errorf("looked at it %d times before one sleep", len(looked))
		}
		if _, err := s.Stop(t.Context(), control.StopRequest{}); err != nil {
			t.Error(err)
		}
		if len(looked) != 2 {
			t.Errorf("looked at it %d times before a sleep and an end", len(looked))
		}
	}, func(c *supervise.Config) {
		c.Leave = func(_ context.Context, e api.Endpoint) { looked = append(looked, string(e)) }
	})
}
