package process

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// reserve uses an abstract Unix socket, which belongs to the port's own network namespace and ends with its process.
func reserve(port int) (io.Closer, error) {
	l, err := net.Listen("unix", fmt.Sprintf("@rouse-port-%d", port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("another process of Rouse has the port %d", port)
	}
	return l, err
}
