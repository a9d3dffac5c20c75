package process

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// thread runs functions on one thread that lives as long as the process does.
var thread = sync.OnceValue(func() chan<- func() {
	work := make(chan func()) // never closed
	go func() {
		runtime.LockOSThread() // and never unlocked: a locked goroutine's thread dies with it
		for f := range work {
			f()
		}
	}()
	return work
})

// onThread runs f on the permanent thread and returns its error.
func onThread(f func() error) error {
	done := make(chan error, 1)
	thread() <- func() { done <- f() }
	return <-done
}

// attributes put a child in a session, and so a group, of its own: nothing of it
// can enter our group.
func attributes(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: death}
}

// spawn starts cmd on the permanent thread and enters it among the known children.
func spawn(cmd *exec.Cmd) error {
	return onThread(func() error {
		children.mu.Lock() // across the fork: a sweep must not meet a child that is not entered yet
		defer children.mu.Unlock()
		if err := cmd.Start(); err != nil {
			return err
		}
		children.known[cmd.Process.Pid] = true
		return nil
	})
}

// reap waits for the child's end and kills its group while the zombie still
// holds the id, so that no other group can have it.
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
	return p.cmd.Wait() // at once: it has ended
}

// DieWithParent makes the kernel send us sig when the thread that started us
// ends. It reports whether the parent was there when the call was done; if not,
// no signal comes and the caller ends itself. A parent that dies before the call
// is not noticed here; [Start] sees to that on its side.
func DieWithParent(sig syscall.Signal) (alive bool, err error) {
	parent := os.Getppid()
	err = onThread(func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(sig), 0, 0, 0) })
	return os.Getppid() == parent, err
}
