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
	"slices"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/activator/batch"
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
	clients, files, admin := s.clients(), page.Files(), s.guard(s.untilTheEnd(s.adminHandler()))
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

// clients is the activator, behind what takes in files, batches and requests that are answered later.
func (s *server) clients() http.Handler {
	if s.batches == nil {
		return batch.Without(s.activator.Handler(), s.activator.OwnHost, howStore)
	}
	return s.batches.Handler(s.activator.Handler())
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
	if s.cfg.Access == nil {
		return slog.New(&s.requests)
	}
	return slog.New(slog.NewMultiHandler(s.cfg.Access.Handler(), &s.requests))
}

// pageHost is how a browser on this machine reaches a server: at an address that means all, by that of loopback.
func pageHost(server string, at *net.TCPAddr) string {
	if at.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", at.Port)
	}
	return server
}

// keptRequests is how many of the last requests are kept. A record takes about 1 KiB: the activator clips what clients write.
const keptRequests = 1000

// requestLog is a [slog.Handler] that keeps the last records of the access log. They are written as JSON when somebody
// asks, and not for each request. It is safe for many goroutines.
type requestLog struct {
	mu      sync.Mutex // guards what follows
	records []slog.Record
	next    int // the oldest, once there are keptRequests
}

// Enabled, WithAttrs and WithGroup are there for the interface: a line of the access log has all attributes itself.
func (l *requestLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *requestLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *requestLog) WithGroup(string) slog.Handler            { return l }

// Handle keeps a record.
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

// last are the n newest records, the newest last.
func (l *requestLog) last(n int) []slog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(max(n, 0), len(l.records))
	list := slices.Concat(l.records[l.next:], l.records[:l.next])
	return list[len(list)-n:]
}

// serve answers with the last requests, the newest last.
func (l *requestLog) serve(w http.ResponseWriter, r *http.Request) {
	n, _ := eventlog.Parameters(r, keptRequests)
	var line bytes.Buffer
	encode, list := slog.NewJSONHandler(&line, nil), []json.RawMessage{}
	for _, record := range l.last(n) {
		line.Reset()
		if encode.Handle(r.Context(), record) == nil { // a buffer takes everything
			list = append(list, slices.Clone(bytes.TrimSpace(line.Bytes())))
		}
	}
	api.WriteJSON(w, http.StatusOK, list)
}
