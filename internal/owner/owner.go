// Package owner says whose a folder and the other side of a Unix socket are. On a machine
// with several users somebody else may make the folder in which a server's socket is looked
// for, and listen there. The package only looks; it is safe for many goroutines.
package owner

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// CheckFolder refuses a folder that another user could have made or can write to.
func CheckFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("check the folder for sockets: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("the folder %s must be yours alone (mode 0700): remove it, or set XDG_RUNTIME_DIR to a folder of your own", path)
	}
	return nil
}

// CheckPeer refuses a connection whose other side (for one that was dialled: who listens) is
// neither this user nor root. Where the system can't tell, it refuses nobody.
func CheckPeer(conn *net.UnixConn) error {
	uid, _, err := Peer(conn)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask whose the other side of %s is: %w", conn.RemoteAddr(), err)
	}
	if uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("the server at %s runs as user %d, and you are %d: it is told nothing", conn.RemoteAddr(), uid, os.Geteuid())
	}
	return nil
}
