package pyfunc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// innerBody's bytes may be a part of the call's body, so a read after the handler has returned gets an error, as in a server.
type innerBody struct {
	mu     sync.Mutex // guards the fields below
	rest   *bytes.Reader
	closed bool
}

func newInnerBody(body []byte) *innerBody { return &innerBody{rest: bytes.NewReader(body)} }

func (b *innerBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.rest.Read(p)
}

func (b *innerBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// recorder keeps the answer to an inner request in memory. It belongs to the goroutine that calls Next.
type recorder struct {
	header http.Header
	status int // 0: nothing was written
	body   []byte
	limit  int64
	bare   bool // of a HEAD: no body
	full   bool // the answer was longer than limit
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.bare {
		return len(p), nil
	}
	if int64(len(r.body)+len(p)) > r.limit {
		r.full = true
		return 0, errors.New("the answer is larger than an envelope may be")
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

func (r *recorder) Flush() {}

// call returns nil if Next's answer is complete. A panic of Next fails only its request.
func (h *Handler) call(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			h.cfg.Logger.Error("a handler panicked", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the function's handler of %s failed", r.URL.Path)
		}
	}()
	defer r.Body.Close()
	switch r.URL.Path {
	case "/ping", "/health":
		h.ServeHTTP(w, r)
	default:
		h.cfg.Next.ServeHTTP(w, r)
	}
	return nil
}

func (r *recorder) takeUsage(path string) relay.Usage {
	u := relay.Usage{Style: api.EventsOf(path)}
	kind := r.header.Get("Content-Type")
	lines := strings.HasPrefix(kind, "application/x-ndjson")
	if lines {
		u.Style = api.StreamLines
	}
	if lines || strings.HasPrefix(kind, "text/event-stream") {
		u.See(r.body, 0)
		r.body = append(r.body[:0], u.Take(r.body)...)
	} else {
		u.Read(r.body)
		if said := r.header.Get(control.HeaderUsage); said != "" {
			u.Tell(said)
		}
	}
	delete(r.header, control.HeaderUsage)
	return u
}

// ending returns the client's error for the end of an answer: 1. none, it is complete; 2. its time was up; 3. it was too long; 4. it
// broke off.
func (r *recorder) ending(ctx context.Context, err error) *api.Error {
	switch {
	case err == nil && !r.full && ctx.Err() == nil: // 1.
		r.WriteHeader(http.StatusOK)
		return nil
	case ctx.Err() != nil: // 2.
		return api.AsError(ctx.Err())
	case r.full: // 3.
		return api.Errorf(http.StatusBadGateway, api.CodeTooLarge, "the runtime's answer is larger than the limit of %s: ask for less, or without an envelope", api.Bytes(r.limit))
	case errors.Is(err, http.ErrAbortHandler): // 4.
		return api.Errorf(http.StatusBadGateway, api.CodeStreamCut, cutShort)
	}
	return api.Errorf(http.StatusInternalServerError, "", "%v", err)
}

func (r *recorder) fail(e *api.Error) {
	*r = recorder{header: http.Header{}, limit: r.limit + maxPath, bare: r.bare} // there is always room for an error
	api.WriteError(r, e)
}

func (r *recorder) unpack() {
	switch strings.ToLower(r.header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip", "x-gzip":
		in, err := gzip.NewReader(bytes.NewReader(r.body))
		if err != nil {
			return
		}
		out, err := io.ReadAll(io.LimitReader(in, r.limit+1))
		r.full = r.full || int64(len(out)) > r.limit
		if err != nil || r.full {
			return
		}
		r.body = out
	default:
		return
	}
	delete(r.header, "Content-Encoding")
}
