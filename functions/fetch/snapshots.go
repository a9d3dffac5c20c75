package fetch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Snapshots of processes lie beside the models, in snapshots/NAME, and share the cache's limit. Package snapshot makes them.

func (c *Cache) snapshotPath(name string) string { return filepath.Join(c.cfg.Dir, "snapshots", name) }

func (c *Cache) snapshotLock(name string) string { return c.lockPath("snapshot-" + name) }

// HoldSnapshot locks a snapshot against eviction and other holders, and returns its folder, which has the mode 0700. It fails if another
// holds it.
func (c *Cache) HoldSnapshot(name string) (dir string, release func(), err error) {
	l, err := tryLock(c.snapshotLock(name), true)
	if err == nil && l == nil {
		err = errors.New("another instance of the function uses its snapshot")
	}
	dir = c.snapshotPath(name)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		l.release()
		return "", nil, err
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // the time of the last use
	return dir, l.release, nil
}

// MakeRoom evicts the least recently used models and snapshots until need more bytes fit.
func (c *Cache) MakeRoom(ctx context.Context, need api.Bytes) error {
	v, release, err := c.lockInventory(ctx)
	if err != nil {
		return err
	}
	defer release()
	return v.makeRoom(0, need)
}

// snapshot is a snapshot in the cache.
type snapshot struct {
	name string
	size api.Bytes
	used time.Time
}

func (c *Cache) snapshots() (all []snapshot) {
	dirs, _ := os.ReadDir(c.snapshotPath("")) // none yet
	for _, d := range dirs {
		s := snapshot{name: d.Name()}
		files, _ := regularFiles(c.snapshotPath(s.name)) // it has just been removed
		for _, info := range files {
			s.size += api.Bytes(info.Size())
		}
		if info, err := d.Info(); err == nil {
			s.used = info.ModTime()
		}
		all = append(all, s)
	}
	return all
}

// dropSnapshot removes a snapshot that nobody holds.
func (v *inventory) dropSnapshot(s snapshot) {
	l, err := tryLock(v.c.snapshotLock(s.name), true)
	if err != nil || l == nil {
		return
	}
	defer l.release()
	if os.RemoveAll(v.c.snapshotPath(s.name)) == nil {
		v.used -= s.size
		v.c.cfg.Logger.Info("evicted snapshot", "name", s.name, "size", s.size.String(), "used", s.used)
	}
}
