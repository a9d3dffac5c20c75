package cpu

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const strayAge = 24 * time.Hour // of an abandoned file

// tileCache is a folder of tile files, shared by all processes of a user. Finished files never change; a process that
// has one mapped keeps it when another deletes it.
type tileCache struct {
	dir   string
	limit int64
	log   *slog.Logger
}

func (c *tileCache) open(path string, w *weights, threads int) (*tiles, error) {
	if w.size > c.limit {
		return nil, fmt.Errorf("it has %d bytes, all tile files together may have %d: raise the limit (--tile-limit)", w.size, c.limit)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	key, err := tileKey(path, w)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.dir, hex.EncodeToString(key[:16])+tileSuffix)
	t, err := c.existing(file, w, key)
	if err != nil {
		// One process packs; the others wait and use its file.
		unlock := c.lock(file)
		defer unlock()
		if t, err = c.existing(file, w, key); err != nil {
			t, err = c.create(file, w, key, threads)
		}
	}
	if err != nil {
		return nil, err
	}
	w.bind(t.mem[headerBytes(w):])
	return t, nil
}

func (c *tileCache) existing(file string, w *weights, key []byte) (*tiles, error) {
	t, err := openTiles(file, w, key)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(file, now, now) // marks it as used; on a read-only disk it is not deleted either
	return t, nil
}

func (c *tileCache) create(file string, w *weights, key []byte, threads int) (*tiles, error) {
	start := time.Now()
	if st, err := os.Stat(file); err == nil {
		c.log.Warn("a tile file is damaged and is made again", "file", file, "bytes", st.Size())
	}
	c.evict(c.limit-w.size, file)
	if err := writeTiles(file, w, key, threads); err != nil {
		return nil, err
	}
	c.log.Info("the model was packed for this processor; later starts use the file", "file", file, "bytes", w.size, "took", time.Since(start))
	return openTiles(file, w, key)
}

// If files cannot be locked, each process makes the file, and the last one stays.
func (c *tileCache) lock(file string) (unlock func()) {
	f, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return func() {}
	}
	if err := lock(f.Fd()); err != nil {
		c.log.Debug("tile files are not locked", "file", f.Name(), "error", err)
	}
	return func() { _ = f.Close() } // unlocks; nothing was written
}

// evict deletes abandoned files, and the least recently used ones, except keep, beyond limit bytes.
func (c *tileCache) evict(limit int64, keep string) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []fs.FileInfo
	var total int64
	for _, e := range entries {
		st, err := e.Info()
		switch {
		case err != nil || !st.Mode().IsRegular():
		case strings.HasSuffix(e.Name(), ".tmp") && strings.Contains(e.Name(), tileSuffix) && time.Since(st.ModTime()) > strayAge:
			c.remove(e.Name())
		case strings.HasSuffix(e.Name(), tileSuffix) && e.Name() != filepath.Base(keep):
			files = append(files, st)
			total += st.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return cmp.Compare(a.ModTime().UnixNano(), b.ModTime().UnixNano()) })
	for _, f := range files {
		if total <= limit {
			return
		}
		c.remove(f.Name())
		total -= f.Size()
	}
}

func (c *tileCache) remove(name string) {
	err := os.Remove(filepath.Join(c.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("an old tile file cannot be deleted", "error", err)
		return
	}
	_ = os.Remove(filepath.Join(c.dir, name+".lock"))
	c.log.Info("an old tile file was deleted", "file", name)
}
