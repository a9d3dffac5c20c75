package serve

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ExitWithParent has the kernel send this process SIGTERM when its parent dies.
// Call it first thing in main: a parent that dies before the call is noticed only
// if this process had another one when it began.
func ExitWithParent() error {
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("exit with parent: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("exit with parent: the parent died already")
	}
	return nil
}
