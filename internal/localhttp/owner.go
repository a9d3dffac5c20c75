package localhttp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// CheckFolder returns an error if another user could have created the folder or can write to it, and so listen on a
// server's socket there.
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

// CheckPeer returns an error unless the peer, for a dialled connection the listener, runs as this user or root. It returns
// nil if the system can't tell.
func CheckPeer(conn *net.UnixConn) error {
	uid, _, err := Peer(conn)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the peer credentials of %s: %w", conn.RemoteAddr(), err)
	}
	if uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("the server at %s runs as user %d, and this process as %d: nothing is sent to it", conn.RemoteAddr(), uid, os.Geteuid())
	}
	return nil
}
