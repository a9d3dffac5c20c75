// Package atomicfile writes small files so that their names mean all of the new content or all of the old, also after a crash.
//
// A write goes to a file beside the target that begins with a point, is synced, and is renamed to the target. It does not follow a
// symbolic link at the target, and makes no folders. Any goroutine may call it; of writes at once one is the last.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path, or makes it, with a mode. After an error the file is what it was.
func Write(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
