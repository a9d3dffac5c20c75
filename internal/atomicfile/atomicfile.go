// Package atomicfile replaces small files atomically: after a crash, a file has either all of its old or all of its
// new content.
//
// A write goes to a file beside the target whose name begins with a dot, is synced, and is renamed to the target. It
// does not follow a symbolic link at the target, and creates no folders. It is safe for concurrent use; the last of
// several writes wins.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write creates or replaces the file at path, with a mode. After an error the file is unchanged.
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
