package vllmsim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// listener refuses clients until the model is loaded, as vLLM does.
type listener struct {
	fd     int
	path   string // of a socket, to be removed
	opened net.Listener
}

func (cmd Command) bind() (*listener, error) {
	l := &listener{fd: -1, path: cmd.Socket}
	if cmd.Config.Surface == LlamaCpp && strings.HasSuffix(cmd.Host, ".sock") {
		l.path = cmd.Host
	}
	if l.path != "" {
		_ = os.Remove(l.path) // of an earlier run
		return l, l.take(syscall.AF_UNIX, &syscall.SockaddrUnix{Name: l.path})
	}
	addr, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(cmd.Host, strconv.Itoa(cmd.Port)))
	if err != nil {
		return nil, err
	}
	if ip := addr.IP.To4(); ip != nil || len(addr.IP) == 0 {
		at := &syscall.SockaddrInet4{Port: addr.Port}
		copy(at.Addr[:], ip)
		return l, l.take(syscall.AF_INET, at)
	}
	at := &syscall.SockaddrInet6{Port: addr.Port}
	copy(at.Addr[:], addr.IP.To16())
	return l, l.take(syscall.AF_INET6, at)
}

func (l *listener) take(family int, at syscall.Sockaddr) error {
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, at)
		if err == nil {
			l.fd = fd
			return nil
		}
		_ = syscall.Close(fd)
		return fmt.Errorf("bind: %w", err)
	}
	_ = syscall.Close(fd)
	return errors.New("socket: its address can't be reused")
}

func (l *listener) listen() (net.Listener, error) {
	if err := syscall.Listen(l.fd, 4096); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	f := os.NewFile(uintptr(l.fd), "listener")
	defer f.Close() // FileListener makes a copy
	l.fd = -1
	open, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.opened = open
	return open, nil
}

func (l *listener) close() {
	if l.fd >= 0 {
		_ = syscall.Close(l.fd)
	}
	if l.opened != nil {
		l.opened.Close()
	}
	if l.path != "" {
		_ = os.Remove(l.path)
	}
}
