package protocol

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnanswered bounds how long sent bytes may stay unacknowledged (RFC 5482): keep-alive probes run only on quiet
// connections.
func limitUnanswered(tcp *net.TCPConn, d time.Duration) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds())) // otherwise TCP's default applies
		})
	}
}
