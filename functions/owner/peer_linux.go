package owner

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the user and process at the other end of a connection; the process is 0 if it runs in another PID
// namespace. The error is [errors.ErrUnsupported] if the system does not support it.
func Peer(conn *net.UnixConn) (uid, pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
