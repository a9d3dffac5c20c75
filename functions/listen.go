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

// listen opens e and returns the endpoint that it listens at. A Unix socket lies in a folder that only this user can enter, which is
// created if need be. It replaces a stale socket.
func listen(e api.Endpoint) (l net.Listener, at api.Endpoint, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen on %s: %w", e, err)
		}
	}()
	network, address := e.Network()
	if path, unix := e.Socket(); unix {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, "", err
		}
		if err := removeStale(path); err != nil {
			return nil, "", err
		}
		l, err = net.Listen(network, address)
		if err != nil {
			return nil, "", err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, "", errors.Join(err, l.Close())
		}
		return l, e, nil
	}
	l, err = net.Listen(network, address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, "", fmt.Errorf("another process listens there; stop it or choose another port: %w", err)
	case err != nil:
		return nil, "", err
	}
	return l, api.Endpoint("http://" + l.Addr().String()), nil
}

// toldHost returns the Host header that the runtime sees for requests that arrive at e. Runtimes on loopback refuse unknown hosts,
// against web pages whose name leads to this machine (DNS rebinding). For a loopback port that check stays. A Unix socket is out of
// reach of web pages, and others reach a public listener by any name of the cluster, so the runtime is told a name that it accepts.
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
		_ = c.Close() // only to see whether somebody listens
		return errors.New("another process listens there; stop it or choose another path")
	}
	return os.Remove(path)
}
