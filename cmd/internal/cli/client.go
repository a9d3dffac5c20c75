package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/internal/admin"
	"github.com/rouse-dev/rouse/internal/owner"
)

// client talks to a server's administrative API.
type client struct {
	endpoint api.Endpoint
	http     *http.Client
	token    string
}

// dial finds the server that the flags, the environment or the machine name.
func dial(cmd *cobra.Command) (*client, error) {
	endpoint, _ := cmd.Flags().GetString("server")
	if endpoint == "" {
		endpoint = os.Getenv("ROUSE_SERVER")
	}
	c := &client{http: &http.Client{Transport: guarded(api.NewTransport(256))}}
	if file, _ := cmd.Flags().GetString("token-file"); file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		c.token = strings.TrimSpace(string(raw))
	}
	var err error
	if endpoint == "" {
		c.endpoint, err = findServer(cmd.Context(), local.BaseDir())
		return c, err
	}
	if c.endpoint, err = api.ParseEndpoint(endpoint); err != nil {
		return nil, fmt.Errorf("--server or $ROUSE_SERVER: %w", err)
	}
	return c, nil
}

// guarded has a transport talk to no Unix socket of another user: manifests hold secrets.
func guarded(t *http.Transport) *http.Transport {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if socket, unix := conn.(*net.UnixConn); unix && err == nil {
			if err := owner.CheckPeer(socket); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		return conn, err
	}
	return t
}

// findServer looks for servers of this user: the one on the usual port, else the only one.
func findServer(ctx context.Context, base string) (api.Endpoint, error) {
	sockets, _ := filepath.Glob(filepath.Join(base, "*", "admin.sock"))
	var ports []int
	for i, path := range sockets {
		if i == 0 {
			if err := owner.CheckFolder(base); err != nil {
				return "", err
			}
		}
		if err := owner.CheckFolder(filepath.Dir(path)); err != nil {
			return "", err
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
		if err != nil {
			continue
		}
		_ = conn.Close()
		if port, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			ports = append(ports, port)
		}
	}
	_, usual, _ := net.SplitHostPort(local.DefaultListen)
	switch preferred, _ := strconv.Atoi(usual); {
	case len(ports) == 0:
		return "", errors.New("no server runs here: start one with `rouse up`, or name one with --server")
	case len(ports) == 1:
		return local.AdminSocket(base, ports[0]), nil
	case slices.Contains(ports, preferred):
		return local.AdminSocket(base, preferred), nil
	}
	slices.Sort(ports)
	return "", fmt.Errorf("several servers run here, on the ports %v: choose one with --server %s", ports, local.AdminSocket(base, ports[0]))
}

// do sends a request and returns the answer, whatever its size; an answer that
// is no success comes back as an error with the server's own words.
func (c *client) do(ctx context.Context, method string, e api.Endpoint, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.URL(path), body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return nil, fmt.Errorf("reach the server at %s: %w", e, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		err := serverError(resp)
		var refused *refusedError
		if _, unix := e.Socket(); !unix && strings.HasPrefix(path, "/rouse/") && errors.As(err, &refused) && refused.code == api.CodeUnknownPath {
			return nil, fmt.Errorf("the administrative API is not open at %s: on the machine itself leave --server out or name its socket, else start the server with --admin-token-file: %w", e, err)
		}
		return nil, err
	}
	return resp, nil
}

// refusedError is what an OpenAI error body says.
type refusedError struct {
	message string
	code    any // a text; some model servers have a number
	status  int
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s (status %d)", e.message, e.status) }

// serverError reads an OpenAI error body.
func serverError(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Error struct {
			Message string
			Code    any
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) == nil && body.Error.Message != "" {
		return &refusedError{body.Error.Message, body.Error.Code, resp.StatusCode}
	}
	return fmt.Errorf("the server answered %s: %s", resp.Status, bytes.TrimSpace(raw))
}

// call sends a request to the administrative API and decodes the answer into out, if that is not nil.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.do(ctx, method, c.endpoint, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	return nil
}

// dialDoor finds the server and where it takes clients' requests.
func dialDoor(cmd *cobra.Command) (*client, api.Endpoint, error) {
	c, err := dial(cmd)
	if err != nil {
		return nil, "", err
	}
	door, err := c.frontDoor(cmd.Context())
	return c, door, err
}

// frontDoor is where the server takes clients' requests.
func (c *client) frontDoor(ctx context.Context) (api.Endpoint, error) {
	if _, unix := c.endpoint.Socket(); !unix {
		return c.endpoint, nil
	}
	var info local.Info
	if err := c.call(ctx, http.MethodGet, admin.PathInfo, nil, &info); err != nil {
		return "", err
	}
	return api.Endpoint(info.URL), nil
}

// explained adds to the error of a function that could not be brought up what its runtime said:
// clients are not told that, who operates the server is.
func (c *client) explained(ctx context.Context, name string, err error) error {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.code != api.CodeStartFailed && refused.code != api.CodeUnhealthy {
		return err
	}
	var f admin.Function
	if c.call(ctx, http.MethodGet, functionPath(name, ""), nil, &f) != nil || f.LastError == "" {
		return err
	}
	return fmt.Errorf("%w\n%s", err, f.LastError)
}

// functionPath is the path of a function that is named as NAME or NAMESPACE/NAME, or by one of its model names.
func functionPath(name string, rest string) string {
	f := api.FunctionName(name)
	return admin.PathFunctions + "/" + f.Namespace() + "/" + f.Name() + rest
}

// functionNames completes names of functions in the shell.
func functionNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := dial(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	var list []admin.Function
	if err := c.call(ctx, http.MethodGet, admin.PathFunctions, nil, &list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, f := range list {
		names = append(names, render.Name(f.Function.Name))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ExitError ends the program with a code and without a message: what is to say was said.
type ExitError struct{ Code int }

// Status is what the program ends with for an error that is no [ExitError].
func Status(err error) int {
	if unusable := (*serve.ModelError)(nil); errors.As(err, &unusable) {
		return api.ExitModel
	}
	return 1
}

// Error says which code.
func (e *ExitError) Error() string { return fmt.Sprintf("exit with code %d", e.Code) }
