//go:build unix

package keep

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mine reports whether this process's user alone can open a file or folder.
func mine(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.Mode().Perm()&0o077 == 0 && int(s.Uid) == os.Geteuid()
}

// identify returns an id that changes with a file's contents, and the last change. Users can set mtime, but not ctime.
func identify(path string) (id string, changed time.Time, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", changed, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	id = fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	return id, time.Unix(0, max(st.Mtim.Nano(), st.Ctim.Nano())), nil
}
