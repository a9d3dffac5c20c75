package process

import (
	"net"
	"strconv"
	"testing"
)

// TestFreePort: a port is not an ephemeral one, and one that another process has reserved is not drawn.
func TestFreePort(t *testing.T) {
	if kernelPorts() < lastPort {
		t.Skip("net.ipv4.ip_local_port_range leaves few ports: this kernel gives them to who asks for any")
	}
	seen := map[string]bool{}
	for range 3 * mostReserved {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < firstPort || n > lastPort {
			t.Errorf("the port is %s, want one of %d to %d", port, firstPort, lastPort)
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatalf("it can't be listened at: %v", err)
		}
		_ = l.Close()
		seen[port] = true
	}
	if n := len(reserved.keep); n != mostReserved {
		t.Errorf("%d are reserved, want %d", n, mostReserved)
	}
	for port := range seen {
		n, _ := strconv.Atoi(port)
		hold, err := reserve(n)
		if err != nil {
			continue // one of the last
		}
		if again, err := reserve(n); err == nil {
			t.Errorf("the port %s is reserved twice", port)
			_ = again.Close()
		}
		_ = hold.Close()
		delete(seen, port)
	}
	if len(seen) != mostReserved {
		t.Errorf("%d ports are reserved against others, want the last %d", len(seen), mostReserved)
	}
}
