package functions

import (
	"errors"
	"fmt"
	"os"
)

// memory is a folder in memory that is there where a disk is not: a container's
// root may be read-only.
const memory = "/dev/shm"

// temporary makes a folder at the first place that lets us.
func temporary() (string, error) {
	var failed error
	for _, at := range []string{os.TempDir(), memory} {
		dir, err := os.MkdirTemp(at, "rouse-")
		if err == nil {
			return dir, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", fmt.Errorf("there is no place for a folder of its own: mount an emptyDir at %s, or name another folder with --dir: %w", os.TempDir(), failed)
}
