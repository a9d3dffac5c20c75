package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

const (
	memoryInterval = 30 * time.Second
	gpuTimeout     = 2 * time.Second
)

// meter measures the memory of the runtime's process in other goroutines; only the owner uses its fields.
type meter struct {
	gpus     func(ctx context.Context, pid int) (held api.Bytes, found bool, err error)
	reports  *Reports
	measured chan measurement // unbuffered; never closed

	at              time.Time // zero: none
	running         int
	again           bool
	cut             context.CancelFunc
	mute            bool
	visible, hidden Child // the last child seen, and the last not seen, among the processes on GPUs
}

type measurement struct {
	child Child
	phase phase
	gpus  bool
	held  api.Bytes
	// of held: a file that others may share
	shared api.SharedMemory
	found  bool
	err    error
}

func newMeter(gpus func(context.Context, int) (api.Bytes, bool, error), r *Reports) *meter {
	return &meter{gpus: gpus, reports: r, measured: make(chan measurement)}
}

// next returns zero if there is none, or one is under way.
func (m *meter) next() time.Time {
	if m.running > 0 {
		return time.Time{}
	}
	return m.at
}

func (m *meter) after(d time.Duration) { m.at = time.Now().Add(d) }

// start cuts short a measurement under way, which belongs to an earlier state; another follows.
func (m *meter) start(p *proc, now phase) {
	m.at = time.Time{}
	if p.child == nil {
		return
	}
	if m.running > 0 {
		m.again = true
		m.cut()
		return
	}
	host := measurement{child: p.child, phase: now}
	gpus := host
	m.running++
	go func() {
		host.held, host.shared, host.err = host.child.Memory()
		m.measured <- host
	}()
	if m.cut = func() {}; !m.looks(p) {
		m.takeTotal(0)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), gpuTimeout)
	m.cut = cancel
	m.running++
	go func() {
		gpus.gpus = true
		gpus.held, gpus.found, gpus.err = m.gpus(ctx, gpus.child.PID())
		cancel()
		m.measured <- gpus
	}()
}

func (m *meter) finish() {
	for ; m.running > 0; m.running-- {
		m.cut()
		<-m.measured
	}
}

// looks reports whether GPU memory can be measured: not if a measurement timed out once, or if the tool did not see the awake runtime, as
// in a container.
func (m *meter) looks(p *proc) bool {
	return m.gpus != nil && !m.mute && !p.attached && m.hidden != p.child
}

func (m *meter) unmeasured(st *api.InstanceStatus, state api.State, level api.Level, p *proc) {
	if state != api.Asleep || level == api.Suspended {
		st.DeviceUse = 0
	}
	if st.State == state && st.Level == level || state == api.Draining || state == api.Awake && st.State == api.Draining {
		return
	}
	st.Memory.Devices, st.Memory.PerDevice = 0, 0
	st.Measuring = state == api.Asleep && p.child != nil && m.looks(p)
}

func (m *meter) take(r measurement, p *proc, now phase) {
	m.running--
	if now == awake {
		m.after(memoryInterval)
	}
	if r.gpus {
		m.takeGPUs(r, p, now)
	} else if old := m.reports.read(); r.err == nil && r.child == p.child &&
		(differs(old.Memory.Host, r.held) || old.Shared.File != r.shared.File || differs(old.Shared.Bytes, r.shared.Bytes)) {
		m.reports.send(m.reports.change(func(st *api.InstanceStatus) { st.Memory.Host, st.Shared = r.held, r.shared }))
	}
	if m.running == 0 && m.again {
		m.again = false
		m.start(p, now)
	}
}

// takeGPUs takes a measurement of GPU memory. A child that is not found holds none if it was seen before; else it is invisible.
func (m *meter) takeGPUs(r measurement, p *proc, now phase) {
	m.mute = m.mute || errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, exec.ErrNotFound)
	switch {
	case r.found:
		m.visible = r.child
	case r.err == nil && r.phase == awake && m.visible != r.child:
		m.hidden = r.child
	}
	if r.child != p.child || r.phase != now || m.again {
		return
	}
	held := api.Bytes(0)
	if r.err == nil && (r.found || m.visible == r.child) {
		held = max(r.held, api.MiB) // 0 would mean: not known
	}
	m.takeTotal(held)
}

func (m *meter) takeTotal(held api.Bytes) {
	old := m.reports.read()
	news := held > 0 && differs(old.Memory.PerDevice, held)
	if !news && !old.Measuring {
		return
	}
	m.reports.send(m.reports.change(func(st *api.InstanceStatus) {
		st.Measuring = false
		if news {
			st.Memory.Devices, st.Memory.PerDevice = max(1, len(st.Devices)), held
		}
	}))
}

func differs(old, now api.Bytes) bool { return max(now-old, old-now)*10 > old }

// noteUse records the use of a GPU that the runtime logs as it falls asleep; the largest counts. It is safe for many goroutines.
func (r *Reports) noteUse(used api.Bytes) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		if st.State != api.Draining && st.State != api.Asleep || st.Level == api.Suspended || used <= st.DeviceUse {
			return false
		}
		st.DeviceUse = used
		return true
	})
}

// A suspension ([api.Suspended]) is the runtime's own sleep, if it has one, and then the driver's ([Suspender]).
//
//  1. A suspended process answers nobody: it gets no request, probe or question for its metrics, and no time to end.
//  2. The wake after it restores the process, and goes on as a wake from its own sleep.
//  3. The first wake decides that it can be suspended. A permanent failure decides that it can't, as do maxTries others in a row.
//  4. After a failed suspension it sleeps as its own sleep left it, or is awake; if the driver has lost it, it is ended.
//  5. A runtime without a sleep of its own that can be suspended is, where it was to sleep at level 1.

// maxTries is how often in a row a suspension and its wake may fail.
const maxTries = 3

type suspension struct {
	works    bool
	never    string // why it can't be suspended; empty: it may
	failures int
	movable  bool           // the last one can be restored onto other GPUs
	devices  []api.DeviceID // sorted
	onto     []api.DeviceID // the GPUs of the next wake; nil: the same
	moved    bool           // devices are not those of Config.Status
}

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

func (m *machine) checkMove(g api.Grant) error {
	u := &m.suspension
	if onto := m.target(g); onto != nil && (!u.movable || len(onto) != len(u.devices)) {
		return api.Errorf(http.StatusConflict, api.CodeUnsupported, "the runtime was suspended on %v and can't be restored onto %v: the driver (580 or newer) moves it, onto as many GPUs", u.devices, onto)
	}
	return nil
}

func (u *suspension) env(env []string) []string {
	if u.moved {
		env = append(slices.Clip(env), "CUDA_VISIBLE_DEVICES="+strings.Trim(strings.ReplaceAll(fmt.Sprint(u.devices), " ", ","), "[]"))
	}
	return env
}

// sleepLevel returns the level to sleep at, and the level of the runtime's own sleep below; 0: it has none.
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

// suspendFailed goes on after a failed suspension: 1. the driver has lost the processes, or another level was wanted: they end; 2. they
// sleep as their own sleep left them; 3. they are awake.
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

// sidecar stands in for a process that somebody else starts and stops.
type sidecar struct {
	once sync.Once
	left chan struct{} // closed on detaching
}

func newSidecar() *sidecar { return &sidecar{left: make(chan struct{})} }

func (c *sidecar) PID() int                { return 0 }
func (c *sidecar) Exited() <-chan struct{} { return c.left }
func (c *sidecar) Status() string          { return "let go" }
func (c *sidecar) Stop(time.Duration)      { c.Kill() }
func (c *sidecar) Kill()                   { c.once.Do(func() { close(c.left) }) }

func (c *sidecar) Memory() (api.Bytes, api.SharedMemory, error) {
	return 0, api.SharedMemory{}, fmt.Errorf("measure the memory of a sidecar: %w", errors.ErrUnsupported)
}
