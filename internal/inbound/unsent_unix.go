//go:build linux || darwin

package inbound

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsent is how much the kernel keeps of what a client's window does not admit yet. With its default of megabytes, a client
// that reads nothing would be noticed only after a long answer.
const unsent = 16 << 10

func boundUnsent(c net.Conn) {
	if tcp, is := c.(*net.TCPConn); is {
		raw, _ := tcp.SyscallConn()        // it was accepted
		_ = raw.Control(func(fd uintptr) { // an error leaves the kernel's own bound
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
		})
	}
}
