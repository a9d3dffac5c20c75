package cli

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/cmd/internal/page/signin"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/flagset"
	"github.com/rouse-dev/rouse/internal/jsonlog"
)

type pageFlags struct {
	Listen     string `flag:"listen" help:"<address> where it listens, without TLS"`
	Front      string `flag:"front" help:"<URL> of the front door, which the playground asks (default: that of --server)"`
	SecretFile string `flag:"oidc-client-secret-file" help:"<file> with the client's secret, read at each sign-in; without it, or where it is not there, PKCE alone is used"`
	CAFile     string `flag:"oidc-ca-file" help:"<file> with certificates that sign the provider's, besides the system's; it may be missing"`
	signin.Config
}

func pageCommand() *cobra.Command {
	f := pageFlags{Listen: "127.0.0.1:8090", Config: signin.Config{Scopes: []string{"email", "profile"}, GroupsClaim: signin.DefaultGroupsClaim, Session: signin.DefaultSession}}
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Serve the page of a server or a cluster to people who sign in",
		Long: `Serve the page of a server or a cluster (--server, --token-file) to people who sign in by OpenID Connect, until Ctrl-C. Who has
one of the groups, or a verified address of e-mail, that --allow-group and --allow-email name has all that the page shows
and may do; nobody else is shown anything. For yourself alone there are rouse ui and kn rouse ui, which need none of this.

At the provider, Rouse is a client of the authorization-code flow with PKCE, whose redirect URI is URL` + signin.PathCallback + `.
What --url, the provider and who may are can also be in the environment, as ROUSE_PAGE_URL, _ISSUER, _CLIENT_ID, _SCOPES,
_GROUPS_CLAIM, _ALLOW_GROUPS, _ALLOW_EMAILS and _SESSION. Sessions are in memory: they end with the program. TLS is for what stands in front: an ingress, or a proxy, which passes on the
Host header as it is.`,
		Example: `  rouse page --server http://rouse-autoscaler.knative-serving --front http://rouse.knative-serving --token-file token \
    --listen :8090 --url https://rouse.example.com --oidc-issuer https://id.example.com --oidc-client-id rouse --allow-group llm-operators`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			cmd.SetContext(ctx)
			if err := pageEnvironment(cmd); err != nil {
				return err
			}
			return f.run(cmd)
		},
	}
	flagset.Add(cmd.Flags(), &f)
	return cmd
}

// pageVariables are environment variables for flags that are not given.
var pageVariables = map[string]string{
	"ROUSE_PAGE_URL": "url", "ROUSE_PAGE_ISSUER": "oidc-issuer", "ROUSE_PAGE_CLIENT_ID": "oidc-client-id", "ROUSE_PAGE_SCOPES": "oidc-scope", "ROUSE_PAGE_GROUPS_CLAIM": "oidc-groups-claim",
	"ROUSE_PAGE_ALLOW_GROUPS": "allow-group", "ROUSE_PAGE_ALLOW_EMAILS": "allow-email", "ROUSE_PAGE_SESSION": "session",
}

func pageEnvironment(cmd *cobra.Command) error {
	for name, flag := range pageVariables {
		value := strings.TrimSpace(os.Getenv(name))
		if value == "" || cmd.Flags().Changed(flag) {
			continue
		}
		if err := cmd.Flags().Set(flag, value); err != nil {
			return fmt.Errorf("$%s: %w", name, err)
		}
	}
	return nil
}

const (
	providerTime = 10 * time.Second
	pageDrain    = 25 * time.Second
)

func (f *pageFlags) run(cmd *cobra.Command) error {
	f.Log = jsonlog.New(cmd.OutOrStdout(), slog.LevelInfo)
	l, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", f.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer l.Close()
	if at, err := netip.ParseAddrPort(l.Addr().String()); err == nil && f.URL == "" && at.Addr().IsLoopback() {
		f.URL = fmt.Sprintf("http://localhost:%d", at.Port())
	}
	handler, err := f.handler(cmd)
	if err != nil {
		return err
	}
	f.Log.Info("the page is served", "url", f.URL, "listen", l.Addr().String())
	return page.Serve(cmd.Context(), l, handler, pageDrain, f.Log)
}

func (f *pageFlags) handler(cmd *cobra.Command) (http.Handler, error) {
	remote, err := f.remote(cmd)
	if err != nil {
		return nil, err
	}
	if f.Client, err = f.client(); err != nil {
		return nil, err
	}
	if f.SecretFile != "" {
		f.Secret = f.secret
	}
	door, err := signin.New(context.WithoutCancel(cmd.Context()), f.Config)
	if err != nil {
		return nil, err
	}
	all := door.Handler(remote.Behind(page.SignedIn(), func(next http.Handler) http.Handler { return door.Guard(untilEnd(cmd.Context(), next)) }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		all.ServeHTTP(w, r)
	}), nil
}

// untilEnd ends streams of the administrative API with ctx.
func untilEnd(ctx context.Context, next http.Handler) http.Handler {
	ends := page.EndWith(ctx, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/rouse/") {
			ends.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

func (f *pageFlags) secret() (string, error) {
	raw, err := os.ReadFile(f.SecretFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}

func (f *pageFlags) client() (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		default:
			roots, err := x509.SystemCertPool()
			if err != nil {
				roots = x509.NewCertPool()
			}
			if !roots.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("--oidc-ca-file %s: there is no certificate in it", f.CAFile)
			}
			t.TLSClientConfig.RootCAs = roots
		}
	}
	return &http.Client{Transport: t, Timeout: providerTime}, nil
}

func (f *pageFlags) remote(cmd *cobra.Command) (page.Remote, error) {
	c, err := dial(cmd)
	if err != nil {
		return page.Remote{}, err
	}
	var front api.Endpoint
	if f.Front != "" {
		if front, err = api.ParseEndpoint(f.Front); err != nil {
			return page.Remote{}, fmt.Errorf("--front: %w", err)
		}
	} else if front, err = c.frontDoor(cmd.Context()); err != nil {
		return page.Remote{}, err
	}
	admin, err := url.Parse(c.endpoint.URL(""))
	if err != nil {
		return page.Remote{}, fmt.Errorf("--server: %w", err)
	}
	door, err := url.Parse(front.URL(""))
	if err != nil {
		return page.Remote{}, fmt.Errorf("--front: %w", err)
	}
	file, _ := cmd.Flags().GetString("token-file")
	return page.Remote{
		Admin: page.Target{URL: admin, Transport: bearer{c.HTTP.Transport, file}, Refused: refusedToken},
		Front: page.Target{URL: door, Transport: c.HTTP.Transport, KeyHeader: "X-Api-Key"},
	}, nil
}

// bearer reads the token at each request.
type bearer struct {
	http.RoundTripper

	file string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.file == "" {
		return b.RoundTripper.RoundTrip(r)
	}
	token, err := disk.ReadToken(b.file)
	if err != nil {
		return nil, fmt.Errorf("read the server's token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.RoundTripper.RoundTrip(r)
}

// refusedToken explains a refusal of this program's token, which the page would take for one of its user.
func refusedToken(resp *http.Response, _ string, body []byte) error {
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return errors.New("the server does not take the token of --token-file")
	case bytes.Contains(body, []byte(api.CodeUnknownPath)):
		return errors.New("the server has no administrative API there: --server names the autoscaler in a cluster, and a server with --admin-token-file elsewhere")
	}
	return nil
}
