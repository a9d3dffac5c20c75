package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

var errNoServer = errors.New("no server runs here: start one with `rouse up`, or name one with --server")

func usualPort() int {
	_, text, _ := net.SplitHostPort(local.DefaultListen)
	port, _ := strconv.Atoi(text)
	return port
}

// findServer returns this user's server on the usual port, else the only one.
func findServer(ctx context.Context, base string) (api.Endpoint, error) {
	ports, err := running(ctx, base)
	if err != nil {
		return "", err
	}
	port := usualPort()
	if !slices.Contains(ports, port) {
		if port = ports[0]; len(ports) > 1 {
			return "", several(ports)
		}
	}
	return local.AdminSocket(base, port), nil
}

func several(ports []int) error {
	return fmt.Errorf("several servers run here, on the ports %v: choose one with --server 127.0.0.1:%d", ports, ports[0])
}

// findServerToChange asks which of several servers it is, and prints an unusual one.
func findServerToChange(cmd *cobra.Command, base string) (api.Endpoint, error) {
	ports, err := running(cmd.Context(), base)
	if err != nil {
		return "", err
	}
	port := ports[0]
	if len(ports) > 1 {
		if !render.IsTerminal(cmd.InOrStdin()) {
			return "", several(ports)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "several servers run here, on the ports %v: which one is it? ", ports)
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if port, err = strconv.Atoi(strings.TrimSpace(line)); err != nil || !slices.Contains(ports, port) {
			return "", several(ports)
		}
	}
	if len(ports) > 1 || port != usualPort() {
		fmt.Fprintf(cmd.ErrOrStderr(), "at the server on port %d:\n", port)
	}
	return local.AdminSocket(base, port), nil
}

func running(ctx context.Context, base string) (ports []int, err error) {
	sockets, _ := filepath.Glob(filepath.Join(base, "*", "admin.sock"))
	for _, path := range sockets {
		port, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		runs, err := runsAt(ctx, base, port)
		if err != nil {
			return nil, err
		}
		if runs {
			ports = append(ports, port)
		}
	}
	if slices.Sort(ports); len(ports) == 0 {
		return nil, errNoServer
	}
	return ports, nil
}

// runsAt fails for a folder that others can change.
func runsAt(ctx context.Context, base string, port int) (bool, error) {
	_, path := local.AdminSocket(base, port).Network()
	for _, dir := range []string{base, filepath.Dir(path)} {
		if err := localhttp.CheckFolder(dir); err != nil {
			return false, err
		}
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err != nil {
		return false, nil // it has ended
	}
	_ = conn.Close()
	return true, nil
}

// socketOf returns the socket of this user's server at e, or else e.
func socketOf(ctx context.Context, base string, e api.Endpoint) api.Endpoint {
	_, address := e.Network()
	host, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return e
	}
	if runs, err := runsAt(ctx, base, port); err != nil || !runs {
		return e
	}
	return local.AdminSocket(base, port)
}
