package owner

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the user and process at the other end of a connection. The error is [errors.ErrUnsupported] if the
// system does not support it.
func Peer(conn *net.UnixConn) (uid, pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Xucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		if cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); failed == nil {
			pid, failed = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), pid, nil
}
