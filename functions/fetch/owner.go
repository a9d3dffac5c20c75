package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// own returns the folder for this user's cache, and its files' owner: dir, or a folder inside it if others may write to dir. A dir that
// this user can't write to is only read, if it is root's or mounted read-only.
func own(dir string) (string, uint32, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", 0, fileError("make the model cache's folder", err)
	}
	uid, err := madeBy(dir)
	switch {
	case errors.Is(err, syscall.EROFS):
		info, err := os.Stat(dir)
		if err != nil {
			return "", 0, fileError("look at the model cache", err)
		}
		return dir, info.Sys().(*syscall.Stat_t).Uid, nil
	case errors.Is(err, fs.ErrPermission) && ownedBy(dir, 0):
		return dir, 0, nil
	case err != nil:
		return "", 0, fileError("write to the model cache", err)
	case ownedBy(dir, uid):
		return dir, uid, nil
	}
	mine := filepath.Join(dir, fmt.Sprintf("user-%d", uid))
	if err := os.Mkdir(mine, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", 0, fileError("make the model cache's folder", err)
	}
	if !ownedBy(mine, uid) {
		return "", 0, fmt.Errorf("the model cache's folder %s belongs to another user, or any user may write to it: remove it, or set ROUSE_CACHE to a folder of your own", mine)
	}
	return mine, uid, nil
}

func (c *Cache) ours(path string) bool { return ownedBy(path, c.uid) || ownedBy(path, 0) }

// madeBy returns the owner of this process's files in dir: network file systems map users.
func madeBy(dir string) (uint32, error) {
	f, err := os.CreateTemp(dir, ".owner-")
	if err != nil {
		return 0, err
	}
	defer discard(f.Name())
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Uid, nil
}

// ownedBy is false for links and world-writable files. A group may write: Kubernetes volumes have one.
func ownedBy(path string, uid uint32) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o002 == 0 && info.Sys().(*syscall.Stat_t).Uid == uid
}
