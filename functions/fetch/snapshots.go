package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Snapshots of processes lie beside the models, in snapshots/NAME, and share the cache's limit. Package snapshot makes them.

func (c *Cache) snapshotPath(name string) string { return filepath.Join(c.cfg.Dir, "snapshots", name) }

// HoldSnapshot locks a snapshot against eviction and other holders, and returns its folder, which has the mode 0700. It fails if another
// holds it.
func (c *Cache) HoldSnapshot(name string) (dir string, release func(), err error) {
	l, err := tryLock(c.lockPath("snapshot-"+name), true)
	switch {
	case err != nil:
		return "", nil, err
	case l == nil:
		return "", nil, errors.New("another instance of the function uses its snapshot")
	}
	dir = c.snapshotPath(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		l.release()
		return "", nil, fileError("make the folder of a snapshot", err)
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // the time of the last use
	return dir, l.release, nil
}

// MakeRoom evicts the least recently used models and snapshots until need more bytes fit.
func (c *Cache) MakeRoom(ctx context.Context, need api.Bytes) error {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer index.release()
	v, err := c.inventory()
	if err != nil {
		return err
	}
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
		_ = filepath.WalkDir(c.snapshotPath(s.name), func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // it has just been removed
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				s.size += api.Bytes(info.Size())
			}
			return nil
		})
		if info, err := d.Info(); err == nil {
			s.used = info.ModTime()
		}
		all = append(all, s)
	}
	return all
}

// dropSnapshot removes a snapshot that nobody holds.
func (v *inventory) dropSnapshot(s snapshot) {
	path := v.c.lockPath("snapshot-" + s.name)
	l, err := tryLock(path, true)
	if err != nil || l == nil {
		return
	}
	defer l.release()
	if os.RemoveAll(v.c.snapshotPath(s.name)) == nil {
		v.used -= s.size
		v.c.cfg.Logger.Info("evicted snapshot", "name", s.name, "size", s.size.String(), "used", s.used)
	}
	discard(path)
}
