//go:build linux || darwin

package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/disk"
)

// lock is a held flock on a file. The kernel drops it when the process dies; children do not inherit it.
type lock struct{ file *os.File }

func (l *lock) release() {
	if l != nil {
		l.file.Close()
	}
}

// tryLock locks the file at path, made if need be; nil without an error: another process holds it. Only an exclusive lock's holder may
// remove the file: who opened it before notices that its name is gone.
func tryLock(path string, exclusive bool) (*lock, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			// Another user's file, or a read-only cache: a lock needs no write access.
			if r, readErr := os.Open(path); readErr == nil {
				f, err = r, nil
			}
		}
		if err != nil {
			return nil, fileError("lock the model cache", err)
		}
		err = disk.TryLock(f, how)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, nil
		}
		if err != nil {
			f.Close()
			return nil, fileError("lock "+path, err)
		}
		if same(f, path) {
			return &lock{f}, nil
		}
		f.Close()
	}
}

// lockedTemp's lock tells the file from one that a crash has left.
func lockedTemp(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, leftover)
		if err != nil {
			return nil, err
		}
		if err = disk.TryLock(f, disk.Exclusive); err == nil && same(f, f.Name()) {
			return f, nil
		}
		f.Close()
		discard(f.Name())
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
	}
}

// leftover begins the names of files that are garbage unless they are locked.
const leftover = "unpacked-"

func same(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named)
}

// waitLock repeats tryLock until it succeeds or ctx ends; waiting, if not nil, is called in between.
func waitLock(ctx context.Context, path string, exclusive bool, waiting func()) (*lock, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		l, err := tryLock(path, exclusive)
		if l != nil || err != nil {
			return l, err
		}
		if waiting != nil {
			waiting()
		}
		if err := bell.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func (c *Cache) lockIndex(ctx context.Context) (*lock, error) {
	return waitLock(ctx, c.lockPath("index"), true, nil)
}

func diskFree(dir string) (api.Bytes, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return api.Bytes(s.Bavail) * api.Bytes(s.Bsize), nil
}
