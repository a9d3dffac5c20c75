package supervise_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// estate is the state that one supervisor leaves to the next, through JSON as in production.
type estate struct{ note []byte }

func (e *estate) save(n supervise.Note) { e.note, _ = json.Marshal(n) }

func (e *estate) read(t *testing.T) supervise.Note {
	t.Helper()
	var n supervise.Note
	if err := json.Unmarshal(e.note, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// succeed runs f on a first supervisor, which then leaves, and next on the one that adopts.
func succeed(t *testing.T, w *world, f, next func(t *testing.T, s *supervise.Supervisor)) {
	t.Helper()
	e := &estate{}
	synctest.Test(t, func(t *testing.T) {
		w.t, w.log = t, process.NewLog(50, nil)
		cfg := supervise.Config{
			Status:  api.InstanceStatus{Instance: "i", Function: "default/f", Concurrency: 2, Epoch: 1},
			Runtime: w, Start: w.start, Log: w.log, Report: w.report, Save: e.save, Canary: w.canary,
			Suspender: &driver{w: w, suspending: w.suspending},
		}
		first, err := supervise.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- first.Run(t.Context()) }()
		synctest.Wait()
		f(t, first)
		if _, err := first.Leave(t.Context(), control.StopRequest{}); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := len(w.reports); n > 0 && w.reports[n-1].State == api.Gone {
			t.Error("who leaves reports that the instance is gone")
		}
		w.states()
		w.made()
		time.Sleep(time.Millisecond) // numbers grow with time
		cfg.Adopt = func() (supervise.Child, runtime.Launch, supervise.Note, bool) {
			n := e.read(t)
			for _, c := range w.children {
				select {
				case <-c.exited:
				default:
					return c, n.Launch(), n, true
				}
			}
			return nil, n.Launch(), n, true
		}
		second, err := supervise.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- second.Run(t.Context()) }()
		synctest.Wait()
		next(t, second)
		if _, err := second.Stop(t.Context(), control.StopRequest{}); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := e.read(t).State; got != api.Gone {
			t.Errorf("the last note says %s, want gone", got)
		}
		for _, c := range w.children {
			<-c.exited
		}
	})
}

func TestAdoptsAwake(t *testing.T) {
	w := &world{traits: inPlace, load: 3 * second}
	succeed(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 7), "")
		s.Reports().SetAdapters([]api.ModelName{"a"}, nil)
		synctest.Wait()
	}, func(t *testing.T, s *supervise.Supervisor) {
		wantStates(t, w, "starting(probing) awake")
		wantCalls(t, w)
		st := s.Status()
		if st.PID != 100 || st.Epoch != 7 || st.LoadTime != 3*second || st.Restarts != 0 || len(st.Adapters) != 1 {
			t.Errorf("%+v: want the same process, epoch 7, the load time of its start, no restart, one adapter", st)
		}
		if _, refused := s.Gate().Enter(); refused != nil {
			t.Error(refused)
		}
		s.Gate().Leave()
	})
}

func TestAdoptsAsleep(t *testing.T) {
	w := &world{traits: inPlace}
	succeed(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 2, 0), "")
	}, func(t *testing.T, s *supervise.Supervisor) {
		wantStates(t, w, "asleep2")
		wantCode(t, "an old wake", wake(s, 1), api.CodeStaleEpoch)
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "wake from 2")
	})
}

func TestAdoptsAsleepWithoutAProcess(t *testing.T) {
	w := &world{}
	succeed(t, w, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "sleep", sleep(s, 2, 1, 0), "")
	}, func(t *testing.T, s *supervise.Supervisor) {
		wantStates(t, w, "asleep2")
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "start 101")
	})
}

func TestAdoptsStarting(t *testing.T) {
	w := &world{load: time.Minute}
	succeed(t, w, func(*testing.T, *supervise.Supervisor) {}, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w)
		wantStates(t, w, "starting(loading) awake")
	})
}

// A sleep that was under way has an unknown result: the runtime is woken.
func TestAdoptsTurning(t *testing.T) {
	w := &world{traits: inPlace, fall: time.Hour}
	succeed(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_ = later(func() error { return sleep(s, 2, 2, 0) })
	}, func(t *testing.T, s *supervise.Supervisor) {
		wantStates(t, w, "starting(waking) awake")
		wantCalls(t, w, "wake from 2")
	})
}

// An adopted runtime that gives no token is restarted.
func TestAdoptsHung(t *testing.T) {
	w := &world{}
	succeed(t, w, func(t *testing.T, _ *supervise.Supervisor) {
		w.set(func() { w.hangs = true })
	}, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "wake", wake(s, 3), "")
		wantCalls(t, w, "stop 100 after 0s", "start 101")
	})
}

func TestAdoptsSidecar(t *testing.T) {
	w := &world{attach: true}
	succeed(t, w, func(*testing.T, *supervise.Supervisor) {}, func(t *testing.T, s *supervise.Supervisor) {
		wantStates(t, w, "starting(probing) awake")
		wantCode(t, "sleep", sleep(s, 2, 1, 0), api.CodeUnsupported)
	})
}

// Leave lets requests finish; a stop overrides it.
func TestLeaveDrains(t *testing.T) {
	w := &world{}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		_, _ = s.Gate().Enter()
		began := time.Now()
		left := later(func() error {
			_, err := s.Leave(t.Context(), control.StopRequest{Drain: 5 * second})
			return err
		})
		time.Sleep(second)
		_, _ = s.Stop(t.Context(), control.StopRequest{Drain: 2 * second})
		if err := <-left; err != nil || time.Since(began) != 3*second {
			t.Errorf("Leave: %v after %v, want the stop's drain", err, time.Since(began))
		}
		if diff := cmp.Diff([]string{"start 100", "stop 100 after 5s"}, w.made()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		s.Gate().Leave()
	})
}
