package localhttp

import (
	"net/netip"
	"os"
	"syscall"
)

// connectLoopback opens a TCP connection to an address of this machine, a numeric host:port. On the loopback
// interface the handshake is over when connect returns, so nothing has to wait. Package net parks the goroutine,
// starts another to watch the context, and sets options for longer distances. This matters because a foreign runtime
// gets a connection per request. If it returns nil, the caller uses [net.Dialer], which reports the error.
func connectLoopback(address string) *os.File {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !to.Addr().Is4() || !to.Addr().IsLoopback() {
		return nil
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	sa := &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	if err = syscall.Connect(fd, sa); err == syscall.EINPROGRESS {
		err = syscall.Connect(fd, sa) // is it connected now?
	}
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	}
	if err != nil || own(fd, sa) {
		_ = syscall.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "tcp "+address)
}

// own reports whether a connection leads to itself. That happens if nobody listens on a port that the kernel also
// assigns.
func own(fd int, to *syscall.SockaddrInet4) bool {
	from, err := syscall.Getsockname(fd)
	at, is := from.(*syscall.SockaddrInet4)
	return err != nil || !is || at.Port == to.Port && at.Addr == to.Addr
}
