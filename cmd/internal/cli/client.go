package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/peertls"
)

type client struct {
	*verb.Client
	endpoint api.Endpoint
	// fingerprint is the front door's certificate's, by its socket; empty: certificates are verified as usual.
	fingerprint string
}

func dial(cmd *cobra.Command) (*client, error) {
	text, _ := cmd.Flags().GetString("server")
	text = cmp.Or(text, os.Getenv("ROUSE_SERVER"))
	token := ""
	if file, _ := cmd.Flags().GetString("token-file"); file != "" {
		var err error
		if token, err = disk.ReadToken(file); err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
	}
	if text == "" {
		endpoint, err := api.Endpoint(""), error(nil)
		if _, changes := cmd.Annotations[verb.Changes]; changes {
			endpoint, err = findServerToChange(cmd, local.BaseDir())
		} else {
			endpoint, err = findServer(cmd.Context(), local.BaseDir())
		}
		if err != nil {
			return nil, err
		}
		return newClient(endpoint, token), nil
	}
	rest, secure := strings.CutPrefix(text, "https://")
	if secure {
		rest = "http://" + rest
	}
	endpoint, err := api.ParseEndpoint(rest)
	if err != nil {
		return nil, fmt.Errorf("--server or $ROUSE_SERVER: %w", err)
	}
	if secure {
		endpoint = "https" + endpoint[len("http"):]
	}
	// A server that listens on all addresses is reached on the loopback one.
	endpoint = api.Endpoint(strings.NewReplacer("://0.0.0.0:", "://127.0.0.1:", "://[::]:", "://[::1]:").Replace(string(endpoint)))
	if token == "" {
		endpoint = socketOf(cmd.Context(), local.BaseDir(), endpoint)
	}
	return newClient(endpoint, token), nil
}

func newClient(endpoint api.Endpoint, token string) *client {
	c := &client{endpoint: endpoint}
	transport := guarded(api.NewTransport(256))
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: c.verify} // verify does it
	c.Client = &verb.Client{
		HTTP: &http.Client{Transport: transport}, URL: endpoint.URL, Peer: "the server at " + string(endpoint), Header: http.Header{},
		Refused: closedDoor(endpoint), //nolint:bodyclose // the client closes it
	}
	if token != "" {
		c.Header.Set("Authorization", "Bearer "+token)
	}
	return c
}

// verify takes the fingerprint of a server on this machine, whose address may be in no certificate, else name and authority.
func (c *client) verify(s tls.ConnectionState) error {
	leaf := s.PeerCertificates[0]
	if c.fingerprint != "" {
		if peertls.Fingerprint(leaf.Raw) != c.fingerprint {
			return errors.New("another server answers: the certificate has not the fingerprint that this user's server tells")
		}
		return nil
	}
	chain := x509.NewCertPool()
	for _, other := range s.PeerCertificates[1:] {
		chain.AddCert(other)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: s.ServerName, Intermediates: chain}); err != nil {
		return fmt.Errorf("%w (SSL_CERT_FILE names a file of certificates to trust)", err)
	}
	return nil
}

// at is for clients' requests, with the key of $ROUSE_API_KEY.
func (c *client) at(e api.Endpoint) *verb.Client {
	other := *c.Client
	other.URL, other.Peer = e.URL, "the server at "+string(e)
	if key := os.Getenv("ROUSE_API_KEY"); key != "" {
		other.Header = c.Header.Clone()
		other.Header.Set("Authorization", "Bearer "+key)
	}
	return &other
}

// guarded keeps a transport from another user's Unix socket: manifests contain secrets.
func guarded(t *http.Transport) *http.Transport {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if socket, unix := conn.(*net.UnixConn); unix && err == nil {
			if err := localhttp.CheckPeer(socket); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		return conn, err
	}
	return t
}

func closedDoor(e api.Endpoint) func(resp *http.Response, method string, body []byte) error {
	return func(resp *http.Response, _ string, body []byte) error {
		if _, unix := e.Socket(); unix || !strings.HasPrefix(resp.Request.URL.Path, "/rouse/") || !bytes.Contains(body, []byte(api.CodeUnknownPath)) {
			return nil
		}
		return fmt.Errorf("the administrative API is not open at %s: on the machine itself leave --server out or name its socket, else start the server with --admin-token-file", e)
	}
}

func dialDoor(cmd *cobra.Command) (*client, api.Endpoint, error) {
	c, err := dial(cmd)
	if err != nil {
		return nil, "", err
	}
	door, err := c.frontDoor(cmd.Context())
	return c, door, err
}

func (c *client) frontDoor(ctx context.Context) (api.Endpoint, error) {
	if _, unix := c.endpoint.Socket(); !unix {
		return c.endpoint, nil
	}
	info, err := c.info(ctx)
	c.fingerprint = info.Fingerprint
	return api.Endpoint(info.URL), err
}

func (c *client) info(ctx context.Context) (info local.Info, err error) {
	err = c.Call(ctx, http.MethodGet, admin.PathInfo, nil, &info)
	return info, err
}

var shared = verb.Program{Name: "rouse", Connect: connect, Complete: functionNames}

// ofFunction says what names mean: for kn rouse, a Service.
const ofFunction = "the function"

func connect(cmd *cobra.Command) (*verb.Server, error) {
	c, err := dial(cmd)
	if err != nil {
		return nil, err
	}
	find := func(_ context.Context, name string) (*verb.Match, error) { // the server reports unknown names
		if _, err := functionPath(name, ""); err != nil {
			return nil, err
		}
		f := functionOf(name)
		return &verb.Match{Name: name, Subject: f, Functions: []verb.Function{{Name: f}}}, nil
	}
	return &verb.Server{Client: c.Client, Find: find, Explain: c.explained}, nil
}

// explained adds the runtime's output, which clients don't get, to a failed start.
func (c *client) explained(ctx context.Context, name string, err error) error {
	var refused *api.Error
	if errors.As(err, &refused) && refused.Code == api.CodeInvalidKey {
		return fmt.Errorf("%w (set $ROUSE_API_KEY; `rouse keys create` makes a key)", err)
	}
	if !errors.As(err, &refused) || refused.Code != api.CodeStartFailed && refused.Code != api.CodeUnhealthy {
		return err
	}
	there, _ := c.declared(ctx)
	at := slices.IndexFunc(there, func(f admin.Function) bool { return called(f, name) })
	if at < 0 || there[at].LastError == "" {
		return err
	}
	return fmt.Errorf("%s could not be brought up: %s", there[at].Function.Name, there[at].LastError)
}

func called(f admin.Function, name string) bool {
	return f.Function.Name == functionOf(name) || slices.Contains(f.Function.Names(), api.ModelName(name))
}

func functionOf(name string) api.FunctionName {
	f := api.FunctionName(name)
	return api.NewFunctionName(f.Namespace(), f.Name())
}

// functionPath refuses a name of dots alone, which would be another path.
func functionPath(name, rest string) (string, error) {
	f := functionOf(name)
	if p := string(f); path.Clean(p) != p {
		return "", fmt.Errorf("there is no function %q", name)
	}
	return admin.FunctionPath(f, rest), nil
}

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
	if err := c.Call(ctx, http.MethodGet, admin.PathFunctions, nil, &list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Function.Name.Short())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ExitError ends the program with a code and without a message, which was printed.
type ExitError struct{ Code int }

// Status returns the exit code for an error that is no [ExitError].
func Status(err error) int {
	if unusable := (*serve.ModelError)(nil); errors.As(err, &unusable) {
		return api.ExitModel
	}
	return 1
}

// Error returns the code as text.
func (e *ExitError) Error() string { return fmt.Sprintf("exit with code %d", e.Code) }
