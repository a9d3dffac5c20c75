//go:build !linux && !darwin

package localhttp

import (
	"errors"
	"net"
)

// Peer is not supported on this OS.
func Peer(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }
