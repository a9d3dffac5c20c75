package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Folders of functions, within the cache's limit: KIND/NAME.
const (
	Snapshots = "snapshots" // of processes
	Compiled  = "compiled"  // by model servers
)

func (c *Cache) folderLock(path string) string {
	return c.lockPath(filepath.Base(filepath.Dir(path)) + "-" + filepath.Base(path))
}

// HoldFolder locks a function's folder (mode 0700) against eviction, and waits for one under way. exclusive
// fails if there are other holders.
func (c *Cache) HoldFolder(ctx context.Context, kind, name string, exclusive bool) (Model, error) {
	path := filepath.Join(c.cfg.Dir, kind, name)
	index, err := c.lockIndex(ctx)
	if err != nil {
		return Model{}, err
	}
	defer index.release()
	l, err := tryLock(c.folderLock(path), exclusive)
	if err == nil && l == nil {
		err = errors.New("another instance of the function uses " + path)
	}
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		l.release()
		return Model{}, err
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // the last use
	return Model{Path: path, release: sync.OnceFunc(l.release)}, nil
}

// MakeRoom evicts the least recently used until need more bytes fit.
func (c *Cache) MakeRoom(ctx context.Context, need api.Bytes) error {
	v, release, err := c.lockInventory(ctx)
	if err != nil {
		return err
	}
	defer release()
	return v.makeRoom(0, need)
}

// folders needs the index locked.
func (c *Cache) folders() (list []Entry) {
	for _, kind := range []string{Snapshots, Compiled} {
		dirs, _ := os.ReadDir(filepath.Join(c.cfg.Dir, kind))
		for _, d := range dirs {
			e := Entry{Ref: kind + "/" + d.Name(), Path: filepath.Join(c.cfg.Dir, kind, d.Name())}
			if info, err := d.Info(); err == nil {
				e.Used = info.ModTime()
			}
			_ = filepath.WalkDir(e.Path, func(_ string, d fs.DirEntry, err error) error {
				if err != nil {
					return nil // it has just been removed
				}
				if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
					e.Size += api.Bytes(info.Size())
				}
				return nil
			})
			l, err := tryLock(c.folderLock(e.Path), true)
			e.InUse = err != nil || l == nil
			l.release()
			list = append(list, e)
		}
	}
	return list
}

// removeFolder leaves a held folder, and returns false.
func (v *inventory) removeFolder(e Entry) bool {
	l, err := tryLock(v.c.folderLock(e.Path), true)
	if err != nil || l == nil {
		return false
	}
	defer l.release()
	if os.RemoveAll(e.Path) != nil {
		return false
	}
	v.used -= e.Size
	v.c.cfg.Logger.Info("evicted folder", "folder", e.Path, "size", e.Size.String(), "used", e.Used)
	return true
}
