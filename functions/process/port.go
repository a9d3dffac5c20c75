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

// Ports for servers that are started here: above the well-known ones, below Kubernetes' node ports.
const (
	firstPort = 10240
	lastPort  = 29999
)

const drawn = 200

// reserved holds the last ports that this process drew: more than it can have servers at once.
var reserved struct {
	mu   sync.Mutex
	keep []io.Closer
}

const mostReserved = 4

// FreePort returns a port of 127.0.0.1 that nobody listens on, for a process that may begin to listen much later. It is not an ephemeral
// one, and no other process of Rouse gets it while this one lives, unless this one draws several more.
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
		_ = reserved.keep[0].Close()
		reserved.keep = slices.Delete(reserved.keep, 0, 1)
	}
	return port, nil
}

func kernelPorts() int {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if fields := strings.Fields(string(raw)); err == nil && len(fields) == 2 {
		if n, err := strconv.Atoi(fields[0]); err == nil {
			return n
		}
	}
	return 32768
}
