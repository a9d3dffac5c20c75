package leader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/internal/disk"
)

const (
	// A taken lock is tried again at intervals, more often for a while after a hint that its holder may have died.
	calmPause, eagerPause = 500 * time.Millisecond, 2 * time.Millisecond
	eagerFor              = 2 * time.Second
)

// lock blocks until it has the folder's lock or ctx ends. hints signals when the lock may be free. The kernel releases it when the file
// is closed.
func lock(ctx context.Context, dir string, hints <-chan struct{}) (*os.File, error) {
	path := filepath.Join(dir, "leader.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var eager time.Time
	for {
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-hints:
			eager = time.Now().Add(eagerFor)
		case <-timer.C:
		}
		err := disk.TryLock(f, disk.Exclusive)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, disk.ErrHeld):
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w; choose a folder on a file system that has locks", path, err)
		}
		pause := calmPause
		if time.Now().Before(eager) {
			pause = eagerPause
		}
		timer.Reset(pause)
	}
}

// stops returns how often an instance of the folder was stopped for good. If that changed since a worker began, the worker must end,
// although no message may have reached it.
func stops(dir string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "stops"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the number of stops: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("read the number of stops from %s: %w; remove the file", filepath.Join(dir, "stops"), err)
	}
	return n, nil
}

// The caller holds the lock.
func countStop(dir string, before int) error {
	if err := disk.WriteFile(filepath.Join(dir, "stops"), []byte(strconv.Itoa(before+1)+"\n"), 0o600); err != nil {
		return fmt.Errorf("count a stop: %w", err)
	}
	return nil
}

func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the workers' folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the workers' folder: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("the workers' folder %s belongs to user %d, we to %d: choose another one", dir, owner.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("the workers' folder %s can be entered by others (mode %v): make it private (chmod 700), or choose another one", dir, info.Mode().Perm())
	}
	return nil
}
