package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// lockName is locked while the folder's process lives.
const lockName = ".lock"

// TempDir creates a folder in at until clean is called, and removes this user's folders of that prefix whose process is gone.
func TempDir(at, prefix string) (dir string, clean func(), err error) {
	sweep(at, prefix)
	made, err := os.MkdirTemp(at, "."+prefix)
	if err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(made, lockName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = disk.TryLock(lock, disk.Exclusive)
	}
	dir = filepath.Join(at, filepath.Base(made)[1:])
	if err == nil {
		err = os.Rename(made, dir) // only now, so that sweep never removes a new one
	}
	if err != nil {
		_ = lock.Close()
		return "", nil, errors.Join(err, os.RemoveAll(made))
	}
	return dir, func() { _ = errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
}

// sweep removes this user's folders whose lock nobody holds.
func sweep(at, prefix string) {
	dirs, _ := filepath.Glob(filepath.Join(at, prefix+"*"))
	for _, dir := range dirs {
		if localhttp.CheckFolder(dir) != nil {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if disk.TryLock(lock, disk.Exclusive) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
