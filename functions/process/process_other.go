//go:build !linux

package process

import (
	"errors"
	"os/exec"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
)

var errLinux = errors.New("process: works on Linux only")

func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func spawn(cmd *exec.Cmd) error { return cmd.Start() }

// reap kills the group once the child is reaped. Without waitid's WNOWAIT the ID might by then belong to another group, if the system
// reuses IDs that fast.
func (p *Process) reap() error {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.dead = true
	return err
}

func sweepStrays() {}

// descent returns the process alone.
func descent(pid int) []int { return []int{pid} }

// Adopt is supported on Linux only.
func Adopt() error { return errLinux }

// CPU is supported on Linux only.
func (p *Process) CPU() (time.Duration, error) { return 0, errLinux }

// KillMarked is supported on Linux only; elsewhere it kills nothing.
func KillMarked(string) {}

// Held is supported on Linux only.
type Held struct{}

// Hold is supported on Linux only.
func Hold(int) (*Held, error) { return nil, errLinux }

// Kill is supported on Linux only.
func (*Held) Kill() bool { return false }

// Ended is supported on Linux only.
func (*Held) Ended() bool { return true }

// Close is supported on Linux only.
func (*Held) Close() {}

// Memory is supported on Linux only.
func (p *Process) Memory() (api.Bytes, api.SharedMemory, error) {
	return 0, api.SharedMemory{}, errLinux
}
