package functions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// memory is the fallback if no disk is writable: a container's root may be read-only.
const memory = "/dev/shm"

// lockName is locked while the folder's process lives.
const lockName = ".lock"

func temporary() (dir string, clean func(), err error) {
	var failed error
	for _, at := range []string{os.TempDir(), memory} {
		sweep(at)
		dir, lock, err := lockedFolder(at)
		if err == nil {
			return dir, func() { _ = errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", nil, fmt.Errorf("no folder for the instance could be created: mount an emptyDir at %s, or name another folder with --dir: %w", os.TempDir(), failed)
}

// lockedFolder names the folder only after it is locked, so that sweep never removes a new one.
func lockedFolder(at string) (dir string, lock *os.File, err error) {
	made, err := os.MkdirTemp(at, ".rouse-")
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(at, strings.TrimPrefix(filepath.Base(made), "."))
	if lock, err = os.OpenFile(filepath.Join(made, lockName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(made))
	}
	err = disk.TryLock(lock, disk.Exclusive)
	if err == nil {
		err = os.Rename(made, dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(made), lock.Close())
	}
	return dir, lock, nil
}

// sweep removes this user's folders whose lock nobody holds.
func sweep(at string) {
	dirs, _ := filepath.Glob(filepath.Join(at, "rouse-*"))
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

// openCache opens the cache in the given folder, else at the first writable place.
func openCache(cfg fetch.Config, given bool) (*fetch.Cache, error) {
	if given {
		return fetch.New(cfg)
	}
	own := filepath.Join("rouse-"+strconv.Itoa(os.Getuid()), "models")
	var failed error
	for _, dir := range []string{cfg.Dir, filepath.Join(os.TempDir(), own), filepath.Join(memory, own)} {
		if dir == "" {
			continue
		}
		if err := writable(dir); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if failed != nil {
			cfg.Logger.Warn("models are fetched into a temporary folder and may be lost with this container: mount a volume and name it with ROUSE_CACHE", "folder", dir, "error", failed)
		}
		cfg.Dir = dir
		return fetch.New(cfg)
	}
	return nil, fmt.Errorf("there is no place for fetched models: mount a volume, an emptyDir at least, and name it with ROUSE_CACHE or --models: %w", failed)
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
