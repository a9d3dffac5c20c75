package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// BaseDir is where this user's servers have their sockets: $XDG_RUNTIME_DIR/rouse, or one under the temporary folder.
func BaseDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "rouse")
	}
	return filepath.Join(os.TempDir(), "rouse-"+strconv.Itoa(os.Getuid()))
}

// AdminSocket returns the administrative endpoint of the server on that port.
func AdminSocket(base string, port int) api.Endpoint {
	return api.Endpoint("unix:" + filepath.Join(base, strconv.Itoa(port), "admin.sock"))
}

// runDir is private to the user, and locked until the server ends, in whatever way.
type runDir struct {
	path string
	lock *os.File
}

// openRunDir removes what a killed server left.
func openRunDir(base string, port int) (*runDir, error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for sockets: %w", err)
	}
	if err := localhttp.CheckFolder(base); err != nil {
		return nil, err
	}
	path := filepath.Join(base, strconv.Itoa(port))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := disk.TryLock(lock, disk.Exclusive); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("another rouse serves port %d already (%s is locked): choose another port with --listen", port, lock.Name())
	}
	d := &runDir{path, lock}
	if err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)); err != nil {
		d.close()
		return nil, fmt.Errorf("make the folder for sockets: %w", err)
	}
	return d, nil
}

func (d *runDir) close() {
	_ = os.RemoveAll(d.path)
	_ = os.Remove(d.lock.Name())
	_ = d.lock.Close()
}
