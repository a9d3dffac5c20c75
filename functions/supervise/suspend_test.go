package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// driver suspends the processes of a world.
type driver struct {
	w                      *world
	suspendErr, restoreErr error
	suspending, restoring  time.Duration
	moves                  bool
}

func (d *driver) Suspend(ctx context.Context, pid int) (bool, error) {
	d.w.call(fmt.Sprint("suspend ", pid))
	if err := nap(ctx, d.suspending); err != nil {
		return false, err
	}
	return d.moves, d.suspendErr
}

func (d *driver) Restore(ctx context.Context, pid int, old, now []api.DeviceID) error {
	call := fmt.Sprint("restore ", pid)
	if len(now) > 0 {
		call += fmt.Sprint(" from ", old, " onto ", now)
	}
	d.w.call(call)
	if err := nap(ctx, d.restoring); err != nil {
		return err
	}
	return d.restoreErr
}

// withDriver runs f on an instance whose runtime can be suspended.
func withDriver(t *testing.T, d *driver, traits runtime.Traits, f func(t *testing.T, s *supervise.Supervisor), change ...func(*supervise.Config)) {
	t.Helper()
	d.w = &world{traits: traits, answers: []string{"good"}}
	run(t, d.w, f, append(change, func(c *supervise.Config) {
		c.Suspender, c.Canary, c.Status.Devices = d, true, []api.DeviceID{"GPU-a"}
	})...)
}

// A suspension is the runtime's own sleep and the driver's, and its wake both the other way round, with the canary at the end.
func TestSuspended(t *testing.T) {
	d := &driver{suspending: 2 * second, restoring: 3 * second}
	withDriver(t, d, inPlace, func(t *testing.T, s *supervise.Supervisor) {
		d.w.made()
		wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
		wantCalls(t, d.w, "canary", "canary", "sleep 1", "suspend 100")
		st := s.Status()
		if st.State != api.Asleep || st.Level != api.Suspended || st.SleepTime != 2*second || st.Suspends || st.NoSuspend != "" {
			t.Errorf("suspended: %+v", st)
		}
		wantCode(t, "a lighter sleep", sleep(s, 2, api.Level2, 0), "")
		wantCode(t, "wake", wake(s, 2), "")
		wantCalls(t, d.w, "restore 100", "wake from 1")
		if st := s.Status(); !st.Suspends || st.WakeTime != 3*second {
			t.Errorf("awake: %+v", st)
		}
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		wantCode(t, "deepen", sleep(s, 2, api.Suspended, 0), "")
		wantCode(t, "wake", wake(s, 2), "")
		wantCalls(t, d.w, "sleep 1", "suspend 100", "restore 100", "wake from 1")
		wantCode(t, "sleep", sleep(s, 2, api.Level2, 0), "")
		wantCode(t, "deepen", sleep(s, 2, api.Suspended, 0), "")
		wantCode(t, "wake", wake(s, 2), "")
		wantCalls(t, d.w, "sleep 2", "suspend 100", "restore 100", "wake from 2")
		wantStates(t, d.w, comesUp+" draining asleep3 starting(waking) awake draining asleep1 asleep3 starting(waking) awake draining asleep2 asleep3 starting(waking) awake")
	})
}

// The runtime's own sleep has the declared level. A suspended runtime gets no time to end, as it would not hear of it.
func TestSuspendedAtItsDeclaredLevel(t *testing.T) {
	d := &driver{}
	withDriver(t, d, inPlace, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
		d.w.made()
		_, err := s.Stop(t.Context(), control.StopRequest{})
		wantCode(t, "stop", err, "")
		wantCalls(t, d.w, "stop 100 after 0s")
	}, func(c *supervise.Config) { c.SleepLevel = api.Level2 })
}

// A failed suspension leaves the sleep as it was; the driver's failure is the caller's.
func TestSuspensionFails(t *testing.T) {
	passing := errors.New("it still computes")
	for name, test := range map[string]struct {
		err    error
		from   api.Level
		states string
		calls  []string
		never  bool
	}{
		"while awake":       {err: passing, states: " draining asleep1", calls: []string{"sleep 1", "suspend 100"}},
		"while asleep":      {err: passing, from: api.Level1, states: " draining asleep1", calls: []string{"sleep 1", "suspend 100"}},
		"while asleep at 2": {err: passing, from: api.Level2, states: " draining asleep2", calls: []string{"sleep 2", "suspend 100"}},
		"for good":          {err: process.ErrNever, from: api.Level1, states: " draining asleep1", calls: []string{"sleep 1", "suspend 100"}, never: true},
		"and all is lost": {err: fmt.Errorf("%w: %w", passing, process.ErrLost), from: api.Level1, states: " draining asleep1 draining(stopping) asleep2",
			calls: []string{"sleep 1", "suspend 100", "stop 100 after 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &driver{suspendErr: test.err}
			withDriver(t, d, inPlace, func(t *testing.T, s *supervise.Supervisor) {
				if test.from > 0 {
					wantCode(t, "sleep", sleep(s, 2, test.from, 0), "")
				}
				wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), api.CodeRuntimeFailed)
				synctest.Wait()
				wantStates(t, d.w, comesUp+test.states)
				d.w.set(func() { d.w.calls = d.w.calls[len(d.w.calls)-len(test.calls):] })
				wantCalls(t, d.w, test.calls...)
				if st := s.Status(); (st.NoSuspend != "") != test.never {
					t.Errorf("no suspension: %q", st.NoSuspend)
				}
				wantCode(t, "wake", wake(s, 2), "")
			})
		})
	}
}

// A restore that takes longer than a wake may is given up: the runtime is ended and started again.
func TestRestoreHangs(t *testing.T) {
	d := &driver{restoring: time.Hour}
	withDriver(t, d, inPlace, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
		d.w.states()
		d.w.made()
		wantCode(t, "wake", wake(s, 2), "")
		wantCalls(t, d.w, "restore 100", "stop 100 after 0s", "start 101")
		wantStates(t, d.w, "starting(waking) unhealthy "+comesUp)
		for range 2 {
			wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
			wantCode(t, "wake", wake(s, 2), "")
		}
		wantCode(t, "suspend after three of them", sleep(s, 2, api.Suspended, 0), api.CodeUnsupported)
	})
}

// A restored runtime that answers otherwise than before is started again.
func TestRestoredWithOtherAnswers(t *testing.T) {
	d := &driver{}
	withDriver(t, d, runtime.Traits{}, func(t *testing.T, s *supervise.Supervisor) {
		d.w.set(func() { d.w.answers = []string{"good", "good", "!!"} })
		wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
		d.w.made()
		wantCode(t, "wake", wake(s, 2), "")
		wantCalls(t, d.w, "restore 100", "canary", "canary", "stop 100 after 0s", "start 101")
		if st := s.Status(); st.CanaryMismatches != 1 || st.Suspends {
			t.Errorf("awake: %+v", st)
		}
	})
}

// The runtime moves with the grant. It is bound to no GPU while it is suspended, if it sees all of them.
func TestRestoredElsewhere(t *testing.T) {
	d := &driver{moves: true}
	withDriver(t, d, inPlace, func(t *testing.T, s *supervise.Supervisor) {
		wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
		if st := s.Status(); st.Devices != nil {
			t.Errorf("bound to %v", st.Devices)
		}
		d.w.made()
		st, err := s.Wake(t.Context(), api.Grant{Epoch: 2, Devices: []api.DeviceID{"GPU-b", api.HostMemory}})
		if err != nil || len(st.Devices) != 1 || st.Devices[0] != "GPU-b" {
			t.Errorf("awake on %v, %v", st.Devices, err)
		}
		wantCalls(t, d.w, "restore 100 from [GPU-a] onto [GPU-b]", "wake from 1")
	}, func(c *supervise.Config) { c.Moves = true })
}

// Nothing stays on the device, and what was there is in host memory: both are measured at each level.
func TestSuspendedMemory(t *testing.T) {
	g := &gpus{held: 70 * api.GiB, found: true}
	d := &driver{}
	withDriver(t, d, inPlace, func(t *testing.T, s *supervise.Supervisor) {
		time.Sleep(2 * second)
		d.w.set(func() { g.held = 2 * api.GiB })
		wantCode(t, "sleep", sleep(s, 2, api.Level1, 0), "")
		time.Sleep(second)
		d.w.set(func() { d.w.print([]byte("Sleep mode freed 70.00 GiB memory, 3.00 GiB memory is still in use.")) })
		synctest.Wait()
		d.w.set(func() { g.held, g.found = 0, false })
		wantCode(t, "suspend", sleep(s, 2, api.Suspended, 0), "")
		time.Sleep(second)
		g.want(t, "starting 0 B", "awake 0 B", "awake 70 GiB", "draining 70 GiB", "asleep 0 B?", "asleep 2 GiB", "asleep 0 B?", "asleep 1 MiB")
		if st := s.Status(); st.DeviceUse != 0 || st.Memory.Host == 0 {
			t.Errorf("suspended: %+v", st)
		}
	}, func(c *supervise.Config) { g.w, c.GPUs = d.w, g.look })
}

// A suspended runtime that was left is restored by the next supervisor, also if the last one left in the middle of the suspension.
func TestAdoptsSuspended(t *testing.T) {
	for name, w := range map[string]*world{
		"asleep":              {traits: inPlace},
		"in the middle of it": {traits: inPlace, suspending: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			succeed(t, w, func(t *testing.T, s *supervise.Supervisor) {
				_ = later(func() error { return sleep(s, 2, api.Suspended, 0) })
			}, func(t *testing.T, s *supervise.Supervisor) {
				wantCode(t, "wake", wake(s, 3), "")
				wantCalls(t, w, "restore 100", "wake from 1")
			})
		})
	}
}
