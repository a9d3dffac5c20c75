package supervise

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/rouse-dev/rouse/api"
)

const (
	// memoryInterval is the time between measurements of a busy runtime's memory.
	memoryInterval = 30 * time.Second
	// gpuTimeout bounds a measurement of GPU memory.
	gpuTimeout = 2 * time.Second
)

// meter measures the memory of the runtime's process, off the owner's goroutine.
type meter struct {
	gpus     func(ctx context.Context, pid int) (held api.Bytes, found bool, err error) // Config.GPUs
	reports  *Reports
	measured chan measurement // unbuffered; never closed

	at              time.Time          // of the next measurement; zero: none
	running         int                // measurements under way
	again           bool               // others are to follow
	cut             context.CancelFunc // cuts short a GPU measurement
	mute            bool               // GPUs can't be measured
	visible, hidden Child              // the last child seen, and the last not seen, among the processes on GPUs
}

// measurement is the memory of a child: the host's, or the GPUs'.
type measurement struct {
	child Child
	phase phase // when it began
	gpus  bool
	held  api.Bytes
	// shared is the part of held that is a file which others may share; of the host.
	shared api.SharedMemory
	found  bool // it was among the processes on GPUs
	err    error
}

func newMeter(gpus func(context.Context, int) (api.Bytes, bool, error), r *Reports) *meter {
	return &meter{gpus: gpus, reports: r, measured: make(chan measurement)}
}

// next returns when the next measurement is due; zero: none, or one is under way.
func (m *meter) next() time.Time {
	if m.running > 0 {
		return time.Time{}
	}
	return m.at
}

func (m *meter) after(d time.Duration) { m.at = time.Now().Add(d) }

// start starts to measure. A measurement under way belongs to an earlier state: it is cut short, and another follows.
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

// finish waits for the measurements under way, and discards them.
func (m *meter) finish() {
	for ; m.running > 0; m.running-- {
		m.cut()
		<-m.measured
	}
}

// looks reports whether GPU memory can be measured. It can't if there is no tool, if a measurement timed out once, or if the tool did
// not see the runtime while it was awake, as in a container.
func (m *meter) looks(p *proc) bool {
	return m.gpus != nil && !m.mute && !p.attached && m.hidden != p.child
}

// unmeasured removes the GPU measurements of the previous state from a report of a new one.
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

// take takes a measurement; a change of more than a tenth is reported.
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

// takeGPUs takes a measurement of GPU memory. A child that is not among the processes on GPUs holds none if it was seen before; else it
// is invisible.
func (m *meter) takeGPUs(r measurement, p *proc, now phase) {
	m.mute = m.mute || errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, exec.ErrNotFound)
	switch {
	case r.found:
		m.visible = r.child
	case r.err == nil && r.phase == awake && m.visible != r.child:
		m.hidden = r.child
	}
	if r.child != p.child || r.phase != now || m.again {
		return // of an earlier state
	}
	held := api.Bytes(0)
	if r.err == nil && (r.found || m.visible == r.child) {
		held = max(r.held, api.MiB) // 0 would mean: not known
	}
	m.takeTotal(held)
}

// takeTotal ends a measurement of GPUs, and reports a known and changed amount.
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

// noteUse records the use of a GPU that a process of the runtime logs as it falls asleep; the largest counts. In other states the line
// means nothing. It is safe for many goroutines.
func (r *Reports) noteUse(used api.Bytes) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		if st.State != api.Draining && st.State != api.Asleep || st.Level == api.Suspended || used <= st.DeviceUse {
			return false
		}
		st.DeviceUse = used
		return true
	})
}
