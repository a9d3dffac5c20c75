//go:build linux

package inbound_test

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// TestUnreadConnectionBlocks: a write to a client that reads nothing blocks soon.
func TestUnreadConnectionBlocks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bound := inbound.NewListener(l, inbound.Limits{}, slog.New(slog.DiscardHandler))
	defer bound.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.(*net.TCPConn).SetReadBuffer(4 << 10)
	server, err := bound.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	raw, err := server.(*inbound.Conn).NetConn().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	written, full := 0, errors.New("")
	if err := raw.Write(func(fd uintptr) bool {
		for part := make([]byte, 4<<10); full != nil && written < 1<<20; {
			n, err := syscall.Write(int(fd), part)
			if errors.Is(err, syscall.EAGAIN) {
				full = nil
			} else if err != nil {
				t.Error(err)
				full = nil
			}
			written += max(n, 0)
		}
		return true
	}); err != nil || full != nil {
		t.Errorf("%d bytes are written to a client that reads none: %v", written, err)
	}
	t.Logf("%d bytes", written)
}
