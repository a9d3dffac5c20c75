// Package page is the web page of a server, embedded in the program. It loads nothing from elsewhere, and calls the
// administrative API with the token after the # of its address, which browsers never send.
//
// Its source is in src; built is npm's output (make page), so that Go needs no npm; make page-check compares the two.
package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// Prefix is the path of the files that the page loads.
const Prefix = "/rouse/page/"

//go:embed built
var built embed.FS

// policy lets the page load its own files and call its own server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// Address returns the address of the page at url, with the token that authorizes it.
func Address(url, token string) string { return strings.TrimSuffix(url, "/") + "/#token=" + token }

// Index serves the page itself.
func Index() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, "index.html") })
}

// SignedIn serves the page to browsers with a session cookie: it offers to sign in at [PathSignIn], and out.
func SignedIn() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, signedIn) })
}

// PathSignIn is for GET in a browser; PathSession reads (GET) and ends (DELETE) the session.
const (
	PathSignIn  = "/rouse/signin"
	PathSession = "/rouse/session"
)

const signedIn = "signed-in.html"

// Files serves the files below [Prefix].
func Files() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, strings.TrimPrefix(r.URL.Path, Prefix)) })
}

// Protect restricts what a browser loads to the page's own files.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func read(name string) ([]byte, error) {
	if name != signedIn {
		return built.ReadFile("built/" + name)
	}
	raw, err := built.ReadFile("built/index.html")
	return bytes.Replace(raw, []byte("<html "), []byte("<html data-sign-in "), 1), err
}

func serve(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	Protect(h)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is for GET", http.StatusMethodNotAllowed)
		return
	}
	raw, err := read(name)
	kind := types[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(raw)
	tag := `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(raw) // net/http writes nothing for HEAD
		return
	}
	h.Set("Content-Encoding", "gzip")
	zip := gzip.NewWriter(w)
	_, _ = zip.Write(raw)
	_ = zip.Close()
}

// Own reports whether a request comes from no page, or from the page of the server that it came to.
func Own(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	list := r.Header["Origin"]
	if len(list) == 0 {
		return true
	}
	u, err := url.Parse(list[0])
	return len(list) == 1 && err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// IsLocal reports whether a URL's host or a Host header can only name this machine. Another domain that resolves to it
// is DNS rebinding.
func IsLocal(host string) bool {
	host = Hostname(host)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// Hostname returns a Host header without port, brackets and final dot, in lower case.
func Hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// EndWith ends requests to next when ctx ends.
func EndWith(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		next.ServeHTTP(w, r.WithContext(own))
	})
}

const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	mostHeader = 64 << 10
)

// Serve serves the page until ctx ends. Requests may then finish within drain.
func Serve(ctx context.Context, l net.Listener, h http.Handler, drain time.Duration, logger *slog.Logger) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader, ErrorLog: log.New(io.Discard, "", 0)}
	l = inbound.Bound(s, l, logger)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if s.Shutdown(patience) != nil {
			_ = s.Close()
		}
		err = <-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}
