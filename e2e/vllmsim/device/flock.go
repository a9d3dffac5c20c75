package device

import (
	"errors"
	"os"
	"syscall"
)

// flock takes the exclusive lock of an open file, which ends when its last copy is closed.
func flock(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
