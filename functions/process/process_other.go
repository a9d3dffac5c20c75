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

// Without waitid's WNOWAIT reap kills the group after the ID is released, which another group might have by then.
func (p *Process) reap() error {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.dead = true
	return err
}

func sweepStrays() {}

func descent(pid int) []int { return []int{pid} }

func Adopt() error { return errLinux }

func (p *Process) CPU() (time.Duration, error) { return 0, errLinux }

func KillMarked(string) {}

type Held struct{}

func Hold(int) (*Held, error) { return nil, errLinux }

func (*Held) Kill() bool { return false }

func (*Held) Ended() bool { return true }

func (*Held) Close() {}

func (p *Process) Memory() (api.Bytes, api.SharedMemory, error) {
	return 0, api.SharedMemory{}, errLinux
}
