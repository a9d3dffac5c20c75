//go:build linux || darwin

package localhttp

import (
	"cmp"
	"net"
)

// Peer returns the user and process at the other end of a connection; the process is 0 in another PID namespace. The error
// is [errors.ErrUnsupported] if the system can't tell.
func Peer(conn *net.UnixConn) (uid, pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { uid, pid, failed = peer(int(fd)) })
	return uid, pid, cmp.Or(err, failed)
}
