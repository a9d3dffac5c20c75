package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWait is in milliseconds: beside other work a killed process may take a second to end.
const endWait = 5000

// Held refers to a process that is no child of ours, and never to a later one with the same ID.
type Held struct{ fd int }

// Hold returns a handle, which the caller must close.
func Hold(pid int) (*Held, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return &Held{fd}, nil
}

// Kill kills the process and blocks for up to 5 s until it has ended. It reports whether the signal could be sent.
func (h *Held) Kill() bool {
	if unix.PidfdSendSignal(h.fd, syscall.SIGKILL, nil, 0) != nil {
		return false
	}
	h.wait(endWait)
	return true
}

// Ended reports whether the process has ended, or does so within 5 s.
func (h *Held) Ended() bool { return h.wait(endWait) }

// Close releases the handle.
func (h *Held) Close() { _ = unix.Close(h.fd) }

func (h *Held) wait(ms int) bool {
	poll := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, ms)
		if err != unix.EINTR {
			return n > 0
		}
	}
}
