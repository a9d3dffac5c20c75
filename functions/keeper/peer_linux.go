package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// sameUser returns the process at the other end of a connection (for one that was
// dialled: the one that listened), and refuses one of another user.
func sameUser(conn net.Conn) (pid int, err error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("keeper: ask for the other side: %w", err)
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("keeper: ask for the other side: %w", err)
	}
	if own := os.Geteuid(); int(cred.Uid) != own {
		return 0, fmt.Errorf("keeper: process %d belongs to user %d, we to %d: workers of one folder must be of one user", cred.Pid, cred.Uid, own)
	}
	if cred.Pid == 0 {
		return 0, errors.New("keeper: the other side runs in another container: workers of one folder must share a PID namespace")
	}
	return int(cred.Pid), nil
}
