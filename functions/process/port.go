package process

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The ports for servers that are started here: above those of well-known servers, below those that Kubernetes gives
// to Services on nodes, and below those that the kernel gives to who asks for any.
const (
	firstPort = 10240
	lastPort  = 29999
)

// drawn is how many ports are drawn before it is given up.
const drawn = 200

// reserved holds the ports that this process drew last: as many as it can have servers at once, and more.
var reserved struct {
	mu   sync.Mutex
	keep []io.Closer
}

const mostReserved = 4

// FreePort finds a port of 127.0.0.1 that nobody listens on, for a process that is to be started. It may take long to
// listen there, and who listens in its place would get its requests: so the port is none that the kernel gives
// to others, and no other process of Rouse gets it while this one lives and draws few more.
func FreePort() (string, error) {
	var last error
	for range drawn {
		port, err := draw(kernelPorts())
		if err == nil {
			return strconv.Itoa(port), nil
		}
		last = err
	}
	return "", fmt.Errorf("find a free port: %w", last)
}

// draw draws a port below those of the kernel, and reserves it.
func draw(kernel int) (int, error) {
	port := 0
	if most := min(lastPort+1, kernel); most-firstPort >= 1000 {
		port = firstPort + rand.IntN(most-firstPort)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	port = l.Addr().(*net.TCPAddr).Port
	hold, err := reserve(port)
	if err != nil {
		return 0, err
	}
	reserved.mu.Lock()
	defer reserved.mu.Unlock()
	reserved.keep = append(reserved.keep, hold)
	if len(reserved.keep) > mostReserved {
		_ = reserved.keep[0].Close() // nothing to do about it
		reserved.keep = slices.Delete(reserved.keep, 0, 1)
	}
	return port, nil
}

// kernelPorts is the first of the ports that the kernel gives to who asks for any.
func kernelPorts() int {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if fields := strings.Fields(string(raw)); err == nil && len(fields) == 2 {
		if n, err := strconv.Atoi(fields[0]); err == nil {
			return n
		}
	}
	return 32768
}
