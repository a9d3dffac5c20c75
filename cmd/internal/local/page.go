package local

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// isPage accepts the page's token, which only this user's socket and terminal show, from this machine.
func (s *server) isPage(r *http.Request) bool {
	got, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return isBearer && subtle.ConstantTimeCompare([]byte(got), []byte(s.pageToken)) == 1 && s.cfg.Peers.Peer(r).Local
}

// frontDoor hides administrative paths from requests without the page's token, unless --admin-token-file may open them.
func (s *server) frontDoor() http.Handler {
	// An open page must not delay the end of the server.
	clients, files, admin := s.clients(), page.Files(), s.guard(page.EndWith(s.ending, s.adminHandler()))
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

func (s *server) clients() http.Handler {
	if s.batches == nil {
		return jobs.Without(s.activator.Handler(), s.activator.OwnHost, howStore)
	}
	return s.batches.Handler(s.activator.Handler())
}

// keptRequests take 1 KiB each: the activator clips what clients write.
const keptRequests = 1000

// requestLog keeps the access log's last records, and encodes them only when they are read. It is safe for many goroutines.
type requestLog struct {
	mu      sync.Mutex // guards all below
	records []slog.Record
	next    int // the oldest record's index, once there are keptRequests
}

// Records have all attributes themselves.
func (l *requestLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *requestLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *requestLog) WithGroup(string) slog.Handler            { return l }

func (l *requestLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.records) < keptRequests {
		l.records = append(l.records, r.Clone())
		return nil
	}
	l.records[l.next] = r.Clone()
	l.next = (l.next + 1) % keptRequests
	return nil
}

// beside takes nil for no other logger.
func (l *requestLog) beside(other *slog.Logger) *slog.Logger {
	if other == nil {
		return slog.New(l)
	}
	return slog.New(slog.NewMultiHandler(other.Handler(), l))
}

func (l *requestLog) last(n int) []slog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(max(n, 0), len(l.records))
	list := slices.Concat(l.records[l.next:], l.records[:l.next])
	return list[len(list)-n:]
}

func (l *requestLog) serve(w http.ResponseWriter, r *http.Request) {
	n, _ := cloudevent.Parameters(r, keptRequests)
	var line bytes.Buffer
	encode, list := slog.NewJSONHandler(&line, nil), []json.RawMessage{}
	for _, record := range l.last(n) {
		line.Reset()
		if encode.Handle(r.Context(), record) == nil {
			list = append(list, slices.Clone(bytes.TrimSpace(line.Bytes())))
		}
	}
	api.WriteJSON(w, http.StatusOK, list)
}

// origins decides which web pages may use the front door, and by which names. Runtimes get no Origin header: they don't check again.
//
//  1. A listener on loopback accepts only loopback addresses, localhost and names below it, the machine's name, the name in --listen, and
//     those of allowed pages: others are DNS rebinding by a page.
//  2. A request without a page passes, unless a browser says that another site's page caused it, other than by a link.
//  3. A page named by --origins, of this machine or served here may read the answers. Preflights are answered here.
//  4. Every other page is refused.
//  5. Administrative paths are for the server's own page only, whatever [Config.Origins] says.
type origins struct {
	loopback bool
	all      bool
	allowed  []string // "scheme://host:port", lower case
	hosts    []string // lower case
}

func newOrigins(cfg Config, at net.Addr) *origins {
	o := &origins{}
	if tcp, ok := at.(*net.TCPAddr); ok {
		o.loopback = tcp.IP.IsLoopback()
	}
	if name, err := os.Hostname(); err == nil {
		o.hosts = append(o.hosts, strings.ToLower(name))
	}
	if name, _, err := net.SplitHostPort(cfg.Listen); err == nil && name != "" {
		o.hosts = append(o.hosts, strings.ToLower(name))
	}
	for _, allowed := range cfg.Origins {
		allowed = strings.ToLower(allowed)
		if allowed == "*" {
			o.all = true
			continue
		}
		o.allowed = append(o.allowed, allowed)
		if u, err := url.Parse(allowed); err == nil && u.Hostname() != "" {
			o.hosts = append(o.hosts, u.Hostname())
		}
	}
	return o
}

func checkOrigin(text string) error {
	u, err := url.Parse(text)
	if text == "*" || text == "null" || err == nil && u.Scheme != "" && u.Host != "" && u.Scheme+"://"+u.Host == text {
		return nil
	}
	return fmt.Errorf("origin %q: want the scheme and host of a page, such as https://chat.example.com, or *", text)
}

func (o *origins) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.loopback && !o.known(page.Hostname(r.Host)) { // 1
			refuseOrigin(w, r, fmt.Sprintf("this server is not known as %.100q: ask http://localhost, or name the page that asks with --origins", r.Host))
			return
		}
		if isAdminPath(r.URL.Path) { // 5
			if !page.Own(r) {
				refuseOrigin(w, r, "administrative paths are for no page but this server's own")
				return
			}
			delete(r.Header, "Origin")
			next.ServeHTTP(w, r)
			return
		}
		asked := r.Host
		if !page.IsLocal(asked) {
			r.Host = "localhost" // a runtime may not know our names
		}
		list := r.Header["Origin"]
		if len(list) == 0 { // 2
			if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !(r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet) {
				refuseOrigin(w, r, "a page of another site caused this request: name that page with --origins")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		origin := list[0]
		if len(list) > 1 || !o.may(origin, asked) { // 4
			refuseOrigin(w, r, fmt.Sprintf("the page %.100q may not use this server: name it with --origins", strings.Join(list, ", ")))
			return
		}
		if r.Method == http.MethodOptions && // 3
			r.Header.Get("Access-Control-Request-Method") != "" {
			preflight(w, r, origin)
			return
		}
		delete(r.Header, "Origin")
		next.ServeHTTP(&readable{ResponseWriter: w, origin: origin}, r)
	})
}

func (o *origins) known(host string) bool {
	return host == "" || page.IsLocal(host) || slices.Contains(o.hosts, host)
}

func (o *origins) may(origin, host string) bool {
	origin = strings.ToLower(origin)
	if o.all || slices.Contains(o.allowed, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return false
	}
	return page.IsLocal(u.Hostname()) || strings.EqualFold(u.Host, host)
}

// allow replaces the runtime's headers.
func allow(h http.Header, origin string) {
	for key := range h {
		if strings.HasPrefix(key, "Access-Control-") {
			delete(h, key)
		}
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, X-Rouse-Instance, Rouse-Fallback, Server-Timing, Location, Preference-Applied, Retry-After, WWW-Authenticate")
}

type readable struct {
	http.ResponseWriter
	origin string
	begun  bool
}

func (a *readable) begin() {
	if !a.begun {
		a.begun = true
		allow(a.Header(), a.origin)
	}
}

func (a *readable) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.begin()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *readable) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

func (a *readable) FlushError() error {
	a.begin()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

func (a *readable) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func preflight(w http.ResponseWriter, r *http.Request, origin string) {
	h := w.Header()
	allow(h, origin)
	h.Add("Vary", "Access-Control-Request-Method")
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

func refuseOrigin(w http.ResponseWriter, r *http.Request, message string) {
	api.WriteErrorTo(w, r, api.Errorf(http.StatusForbidden, page.CodeForbiddenOrigin, "%s", message))
}
