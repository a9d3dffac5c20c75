package serve

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ExitWithParent has the kernel send SIGTERM when the parent dies. Call it first in main: an earlier death shows only
// if this process was reparented meanwhile.
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
