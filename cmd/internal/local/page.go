package local

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// isPage reports whether a request has the token of the page, which this server generated and prints only on the user's own
// socket and on the terminal. It is valid for callers on this machine.
func (s *server) isPage(r *http.Request) bool {
	got, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return isBearer && subtle.ConstantTimeCompare([]byte(got), []byte(s.pageToken)) == 1 && s.cfg.Peers.Peer(r).Local
}

// frontDoor serves the activator, the page's files, and the administrative API for authorized requests. For others
// administrative paths don't exist, unless a token of --admin-token-file may open them.
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

// clients returns the activator, behind the handlers of files, batches and later answers.
func (s *server) clients() http.Handler {
	if s.batches == nil {
		return jobs.Without(s.activator.Handler(), s.activator.OwnHost, howStore)
	}
	return s.batches.Handler(s.activator.Handler())
}

// keptRequests is how many of the last requests are kept. A record takes about 1 KiB: the activator clips what clients write.
const keptRequests = 1000

// requestLog is a [slog.Handler] that keeps the last records of the access log. They are encoded as JSON when read, and not for
// each request. It is safe for concurrent use.
type requestLog struct {
	mu      sync.Mutex // guards all below
	records []slog.Record
	next    int // the oldest, once there are keptRequests
}

// Enabled, WithAttrs and WithGroup are trivial: a record of the access log has all attributes itself.
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

// beside returns a logger to the log, and to another one; nil: there is none.
func (l *requestLog) beside(other *slog.Logger) *slog.Logger {
	if other == nil {
		return slog.New(l)
	}
	return slog.New(slog.NewMultiHandler(other.Handler(), l))
}

// last returns the n newest records, the newest last.
func (l *requestLog) last(n int) []slog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(max(n, 0), len(l.records))
	list := slices.Concat(l.records[l.next:], l.records[:l.next])
	return list[len(list)-n:]
}

// serve answers with the last requests, the newest last.
func (l *requestLog) serve(w http.ResponseWriter, r *http.Request) {
	n, _ := cloudevent.Parameters(r, keptRequests)
	var line bytes.Buffer
	encode, list := slog.NewJSONHandler(&line, nil), []json.RawMessage{}
	for _, record := range l.last(n) {
		line.Reset()
		if encode.Handle(r.Context(), record) == nil { // a buffer accepts everything
			list = append(list, slices.Clone(bytes.TrimSpace(line.Bytes())))
		}
	}
	api.WriteJSON(w, http.StatusOK, list)
}
