package process

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// thread runs functions on the one thread that forks, see the package comment.
var thread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked: a locked goroutine's thread ends with it
		for f := range work {
			f()
		}
	}()
	return work
})

// attributes put a child in its own session and group: none of its descendants can enter our group.
func attributes(outlives bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if outlives {
		a.Pdeathsig = 0
	}
	return a
}

func spawn(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	start := func() error {
		children.mu.Lock() // across the fork: a sweep must not find a child that is not known yet
		defer children.mu.Unlock()
		if err := cmd.Start(); err != nil {
			return err
		}
		children.known[cmd.Process.Pid] = true
		return nil
	}
	thread() <- func() { done <- start() }
	return <-done
}

// reap kills the group while the zombie still holds the ID, so that no other group can have it.
func (p *Process) reap() error {
	for unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.dead = true
	p.mu.Unlock()
	children.mu.Lock()
	defer children.mu.Unlock()
	delete(children.known, p.PID())
	return p.cmd.Wait()
}
