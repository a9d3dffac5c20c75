// Package disk has what the standard library lacks for files that several processes may meet, or a crash. It locks files
// (the kernel releases a lock with its process), replaces files as a whole, walks folders along links, and reads the files that
// people write.
//
// All functions are safe for concurrent use.
package disk

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

// ErrHeld is the error of [TryLock] if another open file of the same name holds the lock.
var ErrHeld error = syscall.EWOULDBLOCK

// TryLock locks f with flock(2), or returns [ErrHeld] without waiting.
func TryLock(f *os.File, how int) error { return WaitLock(f, how|syscall.LOCK_NB) }

// WaitLock locks f. It blocks until the lock is free and cannot be cancelled: holders must be quick.
func WaitLock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err // the caller adds the file's name
		}
	}
}
