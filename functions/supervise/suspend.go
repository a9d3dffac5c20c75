package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// A suspension ([api.Suspended]) is the runtime's own sleep, if it has one, and then the driver's ([Suspender]).
//
//  1. A suspended process answers nobody. It gets no request, no probe and no question for its metrics, and no time to end.
//  2. The wake after it restores the process, and goes on as a wake from its own sleep. It ends with the canary.
//  3. The first wake decides that it can be suspended. A failure that another try would not change decides that it can't, as do
//     maxTries other ones in a row.
//  4. After a failed suspension it sleeps as its own sleep left it, or is awake; if the driver has lost it, it is ended.
//  5. A runtime without a sleep of its own that can be suspended is, where it was to sleep at level 1.

// maxTries is how often in a row a suspension and its wake may fail.
const maxTries = 3

// suspension holds the outcomes of earlier suspensions, and the GPUs of the runtime.
type suspension struct {
	works    bool
	never    string // why it can't be suspended; empty: it may
	failures int
	movable  bool           // the last one can be restored onto other GPUs
	devices  []api.DeviceID // the runtime's GPUs, sorted
	onto     []api.DeviceID // those that the next wake moves it to; nil: the same
	moved    bool           // devices are not those of Config.Status
}

// tried records the outcome of a suspension, or of the wake after one.
func (u *suspension) tried(err error, woke bool) {
	switch {
	case err == nil && woke:
		u.works, u.failures = true, 0
	case err != nil:
		if u.failures++; errors.Is(err, process.ErrNever) || u.failures == maxTries {
			u.works, u.never = false, err.Error()
		}
	}
}

// checkSuspend refuses what can't be suspended.
func (m *machine) checkSuspend() error {
	if m.cfg.Suspender != nil && m.suspension.never == "" && !m.proc.attached {
		return nil
	}
	return api.Errorf(http.StatusConflict, api.CodeUnsupported, "the runtime can't be suspended: %s", cmp.Or(m.suspension.never, "it has no GPUs"))
}

// target returns the GPUs that a grant moves a suspended runtime to; nil: it stays.
func (m *machine) target(g api.Grant) []api.DeviceID {
	onto := slices.DeleteFunc(slices.Sorted(slices.Values(g.Devices)), func(d api.DeviceID) bool { return d == api.HostMemory })
	if m.proc.level != api.Suspended || !m.cfg.Moves || len(onto) == 0 || slices.Equal(onto, m.suspension.devices) {
		return nil
	}
	return onto
}

// checkMove refuses a grant of GPUs that the runtime can't be restored onto.
func (m *machine) checkMove(g api.Grant) error {
	u := &m.suspension
	if onto := m.target(g); onto != nil && (!u.movable || len(onto) != len(u.devices)) {
		return api.Errorf(http.StatusConflict, api.CodeUnsupported, "the runtime was suspended on %v and can't be restored onto %v: the driver (580 or newer) moves it, onto as many GPUs", u.devices, onto)
	}
	return nil
}

// env returns the environment of a runtime that is started.
func (u *suspension) env(env []string) []string {
	if u.moved {
		env = append(slices.Clip(env), "CUDA_VISIBLE_DEVICES="+strings.Trim(strings.ReplaceAll(fmt.Sprint(u.devices), " ", ","), "[]"))
	}
	return env
}

// sleepLevel returns the level at which the runtime is to sleep, and the level of its own sleep below; 0: it has none.
func (m *machine) sleepLevel() (level, own api.Level) {
	level, sleeps := m.want.level, m.cfg.Runtime.Traits().Sleeps
	if level == api.Level1 && !sleeps && m.suspension.works {
		level = api.Suspended
	}
	switch {
	case level != api.Suspended:
		return level, level
	case m.proc.level > api.LevelAwake:
		return level, m.proc.level
	case sleeps:
		return level, max(m.cfg.SleepLevel, api.Level1)
	}
	return level, api.LevelAwake
}

// sleep puts the runtime to sleep, and suspends it.
func (o *operation) sleep(ctx context.Context) (err error) {
	sleep := o.cfg.Runtime.Sleep
	if o.mover != nil {
		sleep = o.mover.Move
	}
	if o.own > o.from {
		if err := sleep(ctx, o.launch.Endpoint, o.own); err != nil || o.level != api.Suspended {
			return err
		}
	}
	o.suspends = true
	o.movable, err = o.cfg.Suspender.Suspend(ctx, o.child.PID())
	return err
}

// restore is the beginning of a wake.
func (o *operation) restore(ctx context.Context, serves func()) (runtime.Answer, error) {
	if o.from == api.Suspended {
		if err := o.cfg.Suspender.Restore(ctx, o.child.PID(), o.old, o.onto); err != nil {
			return runtime.Answer{}, fmt.Errorf("restore it onto its GPUs: %w", err)
		}
	}
	if o.own == api.LevelAwake {
		return o.askCanary(ctx, "")
	}
	return o.cfg.Runtime.Wake(ctx, o.launch.Endpoint, o.own, serves)
}

// suspendFailed goes on after a failed suspension: 1. the driver has lost the processes, or another level was wanted, which is to end
// them; 2. they sleep as their own sleep left them; 3. they are awake.
func (s *Supervisor) suspendFailed(op *operation, r result) {
	s.cfg.Logger.Warn("suspension failed", "error", r.err, "failures", s.suspension.failures)
	if s.want.level == api.Suspended {
		s.callers.answer(api.Asleep, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime was not suspended: %v", r.err))
	}
	switch {
	case errors.Is(r.err, process.ErrLost): // 1.
		s.endProcessWithin(0)
	case s.want.level != api.Suspended: // 1.
		s.endProcess()
	case op.own > api.LevelAwake: // 2.
		s.want.level = op.own
		s.fallAsleep(op.own, op.own)
	default: // 3.
		s.want = goal{state: api.Awake}
		s.wakeUnsure(api.LevelAwake, api.LevelAwake)
	}
}
