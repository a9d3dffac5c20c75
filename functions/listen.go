package functions

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// listen opens e and returns where it listens. A Unix socket lies in a folder
// that only we can enter (made if it is not there) and replaces one that was left behind.
func listen(e api.Endpoint) (net.Listener, api.Endpoint, error) {
	network, address := e.Network()
	if path, unix := e.Socket(); unix {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, "", fmt.Errorf("listen on %s: %w", e, err)
		}
		if err := removeStale(path); err != nil {
			return nil, "", fmt.Errorf("listen on %s: %w", e, err)
		}
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, "", fmt.Errorf("listen on %s: %w", e, err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, "", errors.Join(fmt.Errorf("listen on %s: %w", e, err), l.Close())
		}
		return l, e, nil
	}
	l, err := net.Listen(network, address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, "", fmt.Errorf("listen on %s: another process listens there; stop it or choose another port: %w", e, err)
	case err != nil:
		return nil, "", fmt.Errorf("listen on %s: %w", e, err)
	}
	return l, api.Endpoint("http://" + l.Addr().String()), nil
}

// toldHost is what a runtime is told as the host of requests that come in at e. Runtimes that listen on
// loopback refuse names that they don't know: a web page can have its own name lead to this machine
// (DNS rebinding). Behind a port of this machine they go on doing so. No page leads to a Unix socket, and a
// listener that others reach is found by whatever name a cluster gives it: the runtime is told a name that it knows.
func toldHost(e api.Endpoint) string {
	if _, unix := e.Socket(); unix || e == "" {
		return "localhost"
	}
	_, address := e.Network()
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "localhost" || ip != nil && ip.IsLoopback()) {
		return ""
	}
	return "localhost"
}

// removeStale removes a socket that a dead process left behind, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is no socket; choose another path or remove it")
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close() // it was only a question
		return errors.New("another process listens there; stop it or choose another path")
	}
	return os.Remove(path)
}
