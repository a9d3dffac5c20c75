// Package flock locks open files with flock(2): the kernel releases a lock when its process ends, in whatever way.
package flock

import (
	"errors"
	"os"
	"syscall"
)

// Ways to lock.
const (
	Exclusive = syscall.LOCK_EX
	Shared    = syscall.LOCK_SH
	Unlock    = syscall.LOCK_UN
)

// ErrHeld is the error of [Try] if another open file of the same name holds the lock.
var ErrHeld error = syscall.EWOULDBLOCK

// Try locks f, or returns [ErrHeld] without waiting.
func Try(f *os.File, how int) error { return Wait(f, how|syscall.LOCK_NB) }

// Wait locks f. It blocks until the lock is free and cannot be cancelled: holders must be quick.
func Wait(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err // the caller adds the file's name
		}
	}
}
