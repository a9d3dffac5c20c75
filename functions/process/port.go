package process

import (
	"fmt"
	"net"
	"strconv"
)

// FreePort finds a port of 127.0.0.1 that nobody listens on now, for a process that
// is to be started. Another one can take it first; the process then fails, and is
// started again with another port.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
