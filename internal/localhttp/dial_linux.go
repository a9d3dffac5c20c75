package localhttp

import (
	"net/netip"
	"os"
	"syscall"
)

// connectLoopback opens a TCP connection to an address of this machine, as host:port with a number for each. On the
// loopback interface the handshake is over when connect returns, so that nothing has to be waited for: package net parks
// the goroutine, starts another to watch the context, and sets options that matter on longer ways. A foreign runtime gets a
// connection for each request. Nil: it is not known why not, [net.Dialer] may say.
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
		err = syscall.Connect(fd, sa) // is it there by now?
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

// own says whether a connection leads to itself, which happens where nobody listens at a port that the kernel gives away.
func own(fd int, to *syscall.SockaddrInet4) bool {
	from, err := syscall.Getsockname(fd)
	at, is := from.(*syscall.SockaddrInet4)
	return err != nil || !is || at.Port == to.Port && at.Addr == to.Addr
}
