package local

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/internal/eventlog"
)

// isPage says whether a request bears the token of the page, which this server made and tells only on the user's own socket, and
// on the terminal. It counts for callers on this machine.
func (s *server) isPage(r *http.Request) bool {
	got, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return isBearer && subtle.ConstantTimeCompare([]byte(got), []byte(s.pageToken)) == 1 && s.cfg.Peers.Peer(r).Local
}

// frontDoor is the activator, the page's files, and the administrative API for who has the right. To others
// administrative paths are not there, unless a token of --admin-token-file may open them.
func (s *server) frontDoor() http.Handler {
	clients, files, admin := s.activator.Handler(), page.Files(), s.guard(s.untilTheEnd(s.adminHandler()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isAdminPath(r.URL.Path):
			clients.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, page.Prefix):
			files.ServeHTTP(w, r)
		case s.cfg.AdminToken != nil || s.isPage(r):
			admin.ServeHTTP(w, r)
		default:
			clients.ServeHTTP(w, r)
		}
	})
}

// untilTheEnd ends what is followed when the server begins to: an open page keeps nobody waiting.
func (s *server) untilTheEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ending, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// access is the log of requests: the one that is configured, and what is kept of it for the page.
func (s *server) access() *slog.Logger {
	kept := slog.NewJSONHandler(&s.requests, nil)
	if s.cfg.Access == nil {
		return slog.New(kept)
	}
	return slog.New(slog.NewMultiHandler(s.cfg.Access.Handler(), kept))
}

// pageHost is how a browser on this machine reaches a server: at an address that means all, by that of loopback.
func pageHost(server string, at *net.TCPAddr) string {
	if at.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", at.Port)
	}
	return server
}

// ownPage says whether a request that administers comes from no page, or from this server's own. Unlike clients' paths, these are
// for no other page, whatever [Config.Origins] says.
func ownPage(r *http.Request) bool {
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

// keptRequests is how many of the last requests are kept, and mostLine what one may take.
const (
	keptRequests = 1000
	mostLine     = 4 << 10
)

// requestLog keeps the last lines of the access log. It is safe for many goroutines.
type requestLog struct {
	mu    sync.Mutex // guards lines
	lines []json.RawMessage
}

// Write keeps a line.
func (l *requestLog) Write(line []byte) (int, error) {
	n := len(line)
	if n > mostLine { // names of clients are clipped before: none is so long
		return n, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == keptRequests {
		l.lines = slices.Delete(l.lines, 0, keptRequests/10)
	}
	l.lines = append(l.lines, slices.Clone(line[:n-1])) // without the line's end
	return n, nil
}

// serve answers with the last requests, the newest last.
func (l *requestLog) serve(w http.ResponseWriter, r *http.Request) {
	n, _ := eventlog.Parameters(r, keptRequests)
	l.mu.Lock()
	last := append([]json.RawMessage{}, l.lines[max(0, len(l.lines)-max(0, n)):]...)
	l.mu.Unlock()
	api.WriteJSON(w, http.StatusOK, last)
}
