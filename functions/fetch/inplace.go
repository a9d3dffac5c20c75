package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

func (c *Cache) inPlace(ctx context.Context, r Ref, progress func(Progress)) (Model, error) {
	info, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !filepath.IsAbs(r.path) && !strings.HasPrefix(r.path, "."):
		return Model{}, permanentf("there is no file %s here: an absolute path has three slashes, file:///%s", r.path, r.path)
	case errors.Is(err, fs.ErrNotExist):
		return Model{}, permanentf("there is no file or folder %s", r.path)
	case err != nil:
		return Model{}, fmt.Errorf("look at the model: %w", err)
	case info.IsDir() && r.sha256 != "":
		return Model{}, permanentf("%s is a folder, and a checksum is of a file: leave #sha256=… out, or name the file", r.path)
	case info.IsDir():
		size, err := folderSize(ctx, r.path)
		if err != nil {
			return Model{}, fmt.Errorf("look at the model: %w", err)
		}
		if size == 0 {
			return Model{}, permanentf("the folder %s holds no file", r.path)
		}
		return Model{Path: r.path, Size: size}, nil
	case !info.Mode().IsRegular():
		return Model{}, permanentf("%s is neither a file nor a folder", r.path)
	case info.Size() == 0:
		return Model{}, permanentf("the file %s is empty", r.path)
	}
	size, err := ggufname.Size(r.path)
	if err != nil {
		return Model{}, permanentf("a part of the model is missing: %w", err)
	}
	m := Model{Path: r.path, Size: api.Bytes(size)}
	if strings.EqualFold(filepath.Ext(r.path), ".gguf") {
		m.GGUF = r.path
	}
	if r.sha256 == "" {
		return m, nil
	}
	return m, c.checkInPlace(ctx, r, info, progress)
}

// seen is a file's state when its checksum was verified.
type seen struct {
	Path     string    `json:"path"`
	SHA256   string    `json:"sha256"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// checkInPlace reads a file again only if its size or modification time has changed.
func (c *Cache) checkInPlace(ctx context.Context, r Ref, info fs.FileInfo, progress func(Progress)) error {
	now := seen{Path: r.path, SHA256: r.sha256, Size: info.Size(), Modified: info.ModTime().UTC()}
	note := filepath.Join(c.cfg.Dir, "entries", r.key("")+".seen")
	var before seen
	if text, err := os.ReadFile(note); err == nil && json.Unmarshal(text, &before) == nil && before == now {
		return nil
	}
	m := newMeter(progress, nil)
	defer m.close()
	m.total(api.Bytes(info.Size()))
	sum, err := disk.SHA256(ctx, r.path, func(n int) { m.got(filepath.Base(r.path), api.Bytes(n)) })
	switch {
	case err != nil:
		return fmt.Errorf("check the model: %w", err)
	case sum != r.sha256:
		return permanentf("%s has the sha256 %s, and the reference says %s", r.path, sum, r.sha256)
	}
	m.finish()
	if text, err := json.Marshal(now); err == nil {
		_ = writeFile(note, text) // else it is read again
	}
	return nil
}

func folderSize(ctx context.Context, dir string) (api.Bytes, error) {
	var size api.Bytes
	err := disk.Walk(dir, func(_ string, info fs.FileInfo, err error) error {
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist): // a dangling link is skipped
			return err
		case err == nil && info.Mode().IsRegular():
			size += api.Bytes(info.Size())
		}
		return ctx.Err()
	})
	return size, err
}
