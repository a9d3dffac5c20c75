package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// maxSocketPath is Linux's limit.
const maxSocketPath = 107

// Listen opens addr: "unix:/path" (mode 0600; a stale socket is replaced) or "HOST:PORT", optionally with http://, of a
// loopback host, and returns the address for clients.
func Listen(addr string) (net.Listener, string, error) {
	if path, unix := strings.CutPrefix(addr, "unix:"); unix {
		l, err := listenUnix(path)
		if err != nil {
			return nil, "", fmt.Errorf("listen on %s: %w", addr, err)
		}
		return l, addr, nil
	}
	address := strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")
	if err := checkLoopback(address); err != nil {
		return nil, "", fmt.Errorf("listen on %q: %w", addr, err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() { // the name has another address
		return nil, "", errors.Join(fmt.Errorf("listen on %q: %s is not a loopback address", addr, l.Addr()), l.Close())
	}
	return l, "http://" + l.Addr().String(), nil
}

func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%w: want 127.0.0.1:PORT, localhost:PORT, [::1]:PORT or unix:/path", err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return errors.New("the engine has no access control and listens on this host only: want 127.0.0.1:PORT, localhost:PORT, [::1]:PORT or unix:/path")
}

func listenUnix(path string) (net.Listener, error) {
	if path == "" || len(path) > maxSocketPath {
		return nil, fmt.Errorf("a socket path of %d bytes: want 1 to %d", len(path), maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeStale removes a dead process's socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is not a socket: choose another path or remove it")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = c.Close()
		return errors.New("another process listens there: stop it or choose another path")
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("find out whether a process listens there: %w", err)
}
