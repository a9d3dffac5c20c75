package verb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/internal/disk"
)

// KeysPath is a [KeysFile] on this machine.
type KeysPath string

// String implements [KeysFile].
func (f KeysPath) String() string { return string(f) }

// Read implements [KeysFile].
func (f KeysPath) Read(context.Context) ([]byte, error) {
	raw, err := disk.ReadText(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	return raw, nil
}

// Change implements [KeysFile].
func (f KeysPath) Change(ctx context.Context, change func([]byte) ([]byte, error)) error {
	path := string(f)
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder %s does not exist: make it, or name another file", filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("change the keys: %w", err)
	}
	defer lock.Close() // unlocks it
	if err := disk.WaitLock(lock, disk.Exclusive); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	raw, err := f.Read(ctx)
	if err != nil {
		return err
	}
	changed, err := change(raw)
	if err != nil {
		return err
	}
	return replace(path, changed)
}

func replace(path string, content []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := disk.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the keys: %w", err)
	}
	return nil
}
