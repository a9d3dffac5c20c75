package shim

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/rouse-dev/rouse/internal/localhttp"
)

// sameUser returns the process at the other end of a connection, for a dialled one the process that listened. It refuses another user's.
func sameUser(conn net.Conn) (pid int, err error) {
	uid, pid, err := localhttp.Peer(conn.(*net.UnixConn))
	if err != nil {
		return 0, fmt.Errorf("shim: ask for the other side: %w", err)
	}
	if own := os.Geteuid(); uid != own {
		return 0, fmt.Errorf("shim: process %d belongs to user %d, we to %d: workers of one folder must be of one user", pid, uid, own)
	}
	if pid == 0 {
		return 0, errors.New("shim: the other side runs in another container: workers of one folder must share a PID namespace")
	}
	return pid, nil
}
