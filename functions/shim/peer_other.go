//go:build !linux

package shim

import (
	"errors"
	"net"
)

// sameUser is supported on Linux only.
func sameUser(net.Conn) (pid int, err error) {
	return 0, errors.New("shim: works on Linux only")
}
