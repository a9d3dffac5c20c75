//go:build !linux && !darwin

package owner

import (
	"errors"
	"net"
)

// Peer can't tell whose the other side is.
func Peer(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }
