package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile creates or replaces the file at path, with a mode. After a crash or an error it has all of its old or all of
// its new content. It creates no folders and does not follow a link at path; the last of several writes wins.
//
// The content goes to a file beside it whose name begins with a dot, is synced, and is renamed.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
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
