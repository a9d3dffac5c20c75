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

// countSnapshots adds the snapshots to an inventory. One that is held is counted, and stays.
func (v *inventory) countSnapshots() {
	dirs, _ := os.ReadDir(v.c.snapshotPath("")) // none yet
	for _, d := range dirs {
		path, size, used := v.c.snapshotPath(d.Name()), api.Bytes(0), time.Time{}
		files, _ := regularFiles(path) // it has just been removed
		for _, info := range files {
			size += api.Bytes(info.Size())
		}
		if info, err := d.Info(); err == nil {
			used = info.ModTime()
		}
		v.used += size
		v.images = append(v.images, victim{used, func() {
			l, err := tryLock(v.c.snapshotLock(d.Name()), true)
			if err == nil && l != nil && os.RemoveAll(path) == nil {
				v.used -= size
				v.c.cfg.Logger.Info("evicted snapshot", "folder", path, "size", size.String(), "used", used)
			}
			l.release()
		}})
	}
}
