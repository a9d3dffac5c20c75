package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWait is how long a process that was killed is waited for before it is looked
// for again, in milliseconds.
const endWait = 1000

// Held is a process that is no child of ours, held so that no other one is taken
// for it when its id is used again.
type Held struct{ fd int }

// Hold holds a process.
func Hold(pid int) (*Held, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return &Held{fd}, nil
}

// Kill kills the process and waits up to a second for its end. It says whether
// there was one that could be killed.
func (h *Held) Kill() bool {
	if unix.PidfdSendSignal(h.fd, syscall.SIGKILL, nil, 0) != nil {
		return false
	}
	h.wait(endWait)
	return true
}

// Ended says whether the process has ended, or does so within a second.
func (h *Held) Ended() bool { return h.wait(endWait) }

// Close lets the process go. It is used no more afterwards.
func (h *Held) Close() { _ = unix.Close(h.fd) } // nothing was written to it

func (h *Held) wait(ms int) bool {
	poll := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, ms)
		if err != unix.EINTR {
			return n > 0
		}
	}
}
