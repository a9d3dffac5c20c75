// Package flock locks open files with flock(2): a lock is its process's, whatever ends it.
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

// ErrHeld is why [Try] has no lock: another open file of the same name has one.
var ErrHeld error = syscall.EWOULDBLOCK

// Try locks f, or returns [ErrHeld] at once.
func Try(f *os.File, how int) error { return Wait(f, how|syscall.LOCK_NB) }

// Wait locks f. It waits for whoever holds it, and for no context: its holder must be quick.
func Wait(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err // the caller knows the file
		}
	}
}
