package supervise

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/rouse-dev/rouse/api"
)

const (
	// memoryInterval is how often the memory of a busy runtime is measured.
	memoryInterval = 30 * time.Second
	// gpuTimeout bounds a look at what it holds of GPUs.
	gpuTimeout = 2 * time.Second
)

// measurement is the memory of a child: of the host, or, where there is somebody to ask, of GPUs.
type measurement struct {
	child Child
	phase phase // when it began
	gpus  bool
	held  api.Bytes
	found bool // it was among those who hold something of GPUs
	err   error
}

// measure starts to measure the runtime's memory, off the owner's goroutine. What is being measured
// was of another state: it is cut short, and followed by another.
func (s *Supervisor) measure() {
	s.measureAt = time.Time{}
	if s.child == nil {
		return
	}
	if s.measuring > 0 {
		s.again = true
		s.cut()
		return
	}
	m := measurement{child: s.child, phase: s.phase}
	s.measuring++
	go func() {
		host := m
		host.held, host.err = m.child.Memory()
		s.measured <- host
	}()
	if s.cut = func() {}; !s.looks() {
		s.measuredGPUs(0)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), gpuTimeout)
	s.cut = cancel
	s.measuring++
	go func() {
		gpus := m
		gpus.gpus = true
		gpus.held, gpus.found, gpus.err = s.cfg.GPUs(ctx, m.child.PID())
		cancel()
		s.measured <- gpus
	}()
}

// looks says whether there is somebody to ask what the runtime holds of GPUs: not who is not there, did not answer once, or
// did not see it while it was awake, as in a container.
func (s *Supervisor) looks() bool {
	return s.cfg.GPUs != nil && !s.mute && !s.attached && s.hidden != s.child
}

// unmeasured takes out of a report of a new state what was measured of GPUs in the one before.
func (s *Supervisor) unmeasured(st *api.InstanceStatus, state api.State) {
	if state != api.Asleep {
		st.DeviceUse = 0
	}
	if st.State == state || state == api.Draining || state == api.Awake && st.State == api.Draining {
		return
	}
	st.Memory.Devices, st.Memory.PerDevice = 0, 0
	st.Measuring = state == api.Asleep && s.child != nil && s.looks()
}

// noteMemory takes a measurement; a change of more than a tenth is reported.
func (s *Supervisor) noteMemory(m measurement) {
	s.measuring--
	if s.phase == awake {
		s.measureAt = time.Now().Add(memoryInterval)
	}
	if m.gpus {
		s.noteGPUs(m)
	} else if m.err == nil && m.child == s.child && differs(s.book.read().Memory.Host, m.held) {
		s.report(s.book.change(func(st *api.InstanceStatus) { st.Memory.Host = m.held }))
	}
	if s.measuring == 0 && s.again {
		s.again = false
		s.measure()
	}
}

// noteGPUs takes what the runtime holds of GPUs. That one is not among those who hold something counts for nothing
// held where it was among them before: else it can't be seen.
func (s *Supervisor) noteGPUs(m measurement) {
	s.mute = s.mute || errors.Is(m.err, context.DeadlineExceeded) || errors.Is(m.err, exec.ErrNotFound)
	switch {
	case m.found:
		s.visible = m.child
	case m.err == nil && m.phase == awake && s.visible != m.child:
		s.hidden = m.child
	}
	if m.child != s.child || m.phase != s.phase || s.again {
		return // of a state that is over
	}
	held := api.Bytes(0)
	if m.err == nil && (m.found || s.visible == m.child) {
		held = max(m.held, api.MiB) // nothing would be: not known
	}
	s.measuredGPUs(held)
}

// measuredGPUs reports the end of a look at GPUs, and what the runtime holds of them where it is known and is news.
func (s *Supervisor) measuredGPUs(held api.Bytes) {
	old := s.book.read()
	news := held > 0 && differs(old.Memory.PerDevice, held)
	if !news && !old.Measuring {
		return
	}
	s.report(s.book.change(func(st *api.InstanceStatus) {
		st.Measuring = false
		if news {
			st.Memory.Devices, st.Memory.PerDevice = max(1, len(st.Devices)), held
		}
	}))
}

// differs says whether two amounts do by more than a tenth.
func differs(old, now api.Bytes) bool { return max(now-old, old-now)*10 > old }

// noteUse takes what the runtime says, as it falls asleep, of how full a GPU is: each of its processes says it
// of its own. It may be called from anywhere.
func (s *Supervisor) noteUse(used api.Bytes) {
	if s.book.setUse(used) {
		select {
		case s.changed <- struct{}{}:
		default: // the report that is due says it all
		}
	}
}

// setUse says whether that is news. Who does not fall asleep has nothing to say.
func (b *book) setUse(used api.Bytes) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.State != api.Draining && b.status.State != api.Asleep || used <= b.status.DeviceUse {
		return false
	}
	b.status.DeviceUse = used
	return true
}
