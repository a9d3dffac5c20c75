// Package signin authenticates users of a server's page by OpenID Connect: the authorization-code flow with PKCE. An
// allowed user gets a session, which authorizes the page's administrative requests.
//
// The life of a sign-in:
//
//  1. GET [page.PathSignIn] gives the browser a cookie with a secret, and redirects it to the provider. State, nonce
//     and PKCE verifier are derived from it with a key of this process: sign-ins that only begin use no memory.
//  2. The provider sends the browser back. The answer must match the cookie and come within ten minutes.
//  3. The code is redeemed, and the ID token verified: signature, issuer, audience, time, nonce.
//  4. Groups or verified e-mail address must be allowed ([Config]); none are by default.
//  5. A session begins: a random text in a cookie that scripts can't read. It ends at a fixed time, when its owner
//     signs out, and with this process. Its streams end with it.
//
// A request needs a session and, if it changes something, the page's own origin ([Server.Guard]). No parameter selects
// where browsers are redirected.
//
// A [Server] is safe for concurrent use.
package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/page"
)

// PathCallback is where the provider sends browsers back.
const PathCallback = page.PathSignIn + "/callback"

// Config configures the sign-in. URL, Issuer, ClientID, Log and an allowed group or address are required.
type Config struct {
	// URL is the page's own: https://HOST, or http if the host is this machine.
	URL string `flag:"url" help:"the page's own <URL>, as browsers have it: https, or http on this machine (default: that of --listen, on loopback)"`
	// Issuer is https, or http if the host is this machine.
	Issuer   string `flag:"oidc-issuer" help:"<URL> of the provider (required)"`
	ClientID string `flag:"oidc-client-id" help:"Rouse's <name> at the provider (required)"`
	// Secret is called at each sign-in. Nil: PKCE alone proves that the browser that redeems a code began the sign-in.
	Secret func() (string, error)
	// Scopes are in addition to openid. Default: email, profile.
	Scopes []string `flag:"oidc-scope" split:"" help:"<scopes> that are asked for besides openid; some providers want groups"`
	// Default: groups.
	GroupsClaim string   `flag:"oidc-groups-claim" help:"the <claim> of the ID token that has a person's groups"`
	Groups      []string `flag:"allow-group" split:"" help:"<group> whose members may sign in (repeatable)"`
	// Emails are the allowed verified addresses; @HOST allows all of a host.
	Emails []string `flag:"allow-email" split:"" help:"<address> that may sign in where the provider has verified it; @HOST is all of a host (repeatable)"`
	// Default: 8 h.
	Session time.Duration `flag:"session" least:"1m" help:"how long a session lasts; a group is looked at when one begins"`
	// Client reaches the provider. Default: one with a timeout of 10 s.
	Client *http.Client
	Log    *slog.Logger
}

// Defaults of a [Config].
const (
	DefaultSession     = 8 * time.Hour
	DefaultGroupsClaim = "groups"
	providerTimeout    = 10 * time.Second
)

// Validate reports what is wrong, in terms of the flags.
func (c Config) Validate() error {
	switch {
	case c.Log == nil:
		return errors.New("signing in: no log")
	case c.ClientID == "":
		return errors.New("--oidc-client-id: want the name that the provider has for this page")
	case len(c.Groups)+len(c.Emails) == 0:
		return errors.New("nobody may sign in: name groups with --allow-group, or addresses with --allow-email")
	}
	for _, e := range c.Emails {
		if name, host, found := strings.Cut(e, "@"); !found || host == "" || strings.ContainsAny(name+host, "@* ") {
			return fmt.Errorf("--allow-email %q: want an address, or @HOST for all of a host", e)
		}
	}
	for _, g := range c.Groups {
		if strings.TrimSpace(g) == "" {
			return errors.New("--allow-group: want the name of a group")
		}
	}
	if err := checkURL("--url", c.URL, false); err != nil {
		return err
	}
	return checkURL("--oidc-issuer", c.Issuer, true)
}

// checkURL reports why a browser may not be sent to text with a secret.
func checkURL(flag, text string, path bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s %q: want a URL such as https://rouse.example.com", flag, text)
	case u.Scheme == "http" && !page.IsLocal(u.Hostname()):
		return fmt.Errorf("%s %s: want https: over http others on the way could read what signs people in", flag, text)
	case !path && strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("%s %s: the page has a host of its own: want no path", flag, text)
	}
	return nil
}

// Server signs users in.
type Server struct {
	cfg      Config
	origin   string
	key      [32]byte
	provider provider
	sessions sessions
	cookies  cookies
}

// New returns a Server. It sends no requests yet. All sessions end with ctx.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.GroupsClaim == "" {
		cfg.GroupsClaim = DefaultGroupsClaim
	}
	if cfg.Session == 0 {
		cfg.Session = DefaultSession
	}
	if cfg.Scopes == nil {
		cfg.Scopes = []string{"email", "profile"}
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: providerTimeout}
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	s := &Server{cfg: cfg, origin: origin(u), cookies: newCookies(u)}
	_, _ = rand.Read(s.key[:]) // never fails
	s.provider = newProvider(ctx, cfg, s.origin+PathCallback)
	s.sessions.init(ctx)
	return s, nil
}

// origin is as browsers send it.
func origin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if name, port, err := net.SplitHostPort(host); err == nil && (scheme == "https" && port == "443" || scheme == "http" && port == "80") {
		host = name
		if strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	return scheme + "://" + host
}

// Handler serves the paths of signing in and out, and passes others to next.
func (s *Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case page.PathSignIn:
			s.get(w, r, s.begin)
		case PathCallback:
			s.get(w, r, s.finish)
		case page.PathSession:
			s.session(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	page.Protect(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		say(w, http.StatusMethodNotAllowed, "People sign in here, with a browser.")
		return
	}
	serve(w, r)
}

// Guard lets requests with a session through; changes only from the page itself. The request ends with the session.
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := s.admitted(w, r)
		if held == nil {
			return
		}
		if !reads(r) {
			s.cfg.Log.Info("a person asks for a change", "subject", held.who.Subject, "email", held.who.Email, "method", r.Method, "path", r.URL.Path)
		}
		page.EndWith(held.ctx, next).ServeHTTP(w, r)
	})
}

// admitted returns nil for a request that it has refused.
func (s *Server) admitted(w http.ResponseWriter, r *http.Request) *session {
	if !s.own(r) {
		api.WriteErrorTo(w, r, api.Errorf(http.StatusForbidden, page.CodeForbiddenOrigin, "this server is for no page but its own, %s", s.origin))
		return nil
	}
	held := s.sessions.find(s.cookies.read(r, s.cookies.session))
	if held == nil {
		api.WriteErrorTo(w, r, api.Errorf(http.StatusUnauthorized, "sign_in", "nobody is signed in, or the session has ended: sign in at %s%s", s.origin, page.PathSignIn))
	}
	return held
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// own reports whether a request comes from the page; a reading one may also come from no page.
func (s *Server) own(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && (site != "none" || !reads(r)) {
		return false
	}
	list := r.Header["Origin"]
	if len(list) == 0 {
		return reads(r)
	}
	return len(list) == 1 && strings.EqualFold(list[0], s.origin)
}

// session answers with the session's owner, or ends the session.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	held := s.admitted(w, r)
	if held == nil {
		return
	}
	switch r.Method {
	case http.MethodGet:
		api.WriteJSON(w, http.StatusOK, map[string]any{"subject": held.who.Subject, "email": held.who.Email, "name": held.who.Name, "ends": held.ends})
	case http.MethodDelete:
		held.end()
		s.cookies.clear(w, s.cookies.session)
		s.cfg.Log.Info("a person has signed out", "subject", held.who.Subject, "email", held.who.Email)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, DELETE")
		api.WriteErrorTo(w, r, api.Errorf(http.StatusMethodNotAllowed, api.CodeUnknownPath, "a session is for GET and DELETE"))
	}
}
