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

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// recorder is the answer to an inner request, in memory. It belongs to the
// goroutine that calls Next.
type recorder struct {
	header http.Header
	status int // 0: none was written
	body   *buffer
	limit  int64
	bare   bool // the answer to a HEAD, which has no body
	full   bool // the answer was longer than limit
}

// Header is the answer's header.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the status. Interim answers have nowhere to go.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

// Write takes a part of the body.
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.bare {
		return len(p), nil
	}
	if int64(len(r.body.b))+int64(len(p)) > r.limit {
		r.full = true
		return 0, errors.New("the answer is larger than an envelope may be")
	}
	r.body.b = append(r.body.b, p...)
	return len(p), nil
}

// Flush does nothing: an envelope is whole.
func (r *recorder) Flush() {}

// call sends a request to Next and says how its answer ended: nil, or why it is
// not whole. A panic of Next is one of its request only.
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
	switch r.URL.Path {
	case "/ping", "/health": // of a scoring server, and of the model servers that clients know
		h.ServeHTTP(w, r)
	default:
		h.cfg.Next.ServeHTTP(w, r)
	}
	return nil
}

// used is what the answer of a path has used, which is taken out where it is not the answer's own.
func (r *recorder) used(path string) relay.Usage {
	u := relay.Usage{Style: api.EventsOf(path)}
	switch kind := r.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "application/x-ndjson"):
		u.Style = api.StreamLines
		fallthrough
	case strings.HasPrefix(kind, "text/event-stream"):
		u.See(r.body.b, 0)
		r.body.b = append(r.body.b[:0], u.Take(r.body.b)...)
	default:
		u.Read(r.body.b)
		if said := r.header.Get(control.HeaderUsage); said != "" {
			u.Tell(said)
		}
	}
	delete(r.header, control.HeaderUsage)
	return u
}

// settle makes of how a recorded answer ended what the client is told: 1. it is
// whole; 2. its time was up; 3. it was too long; 4. it broke off.
func (r *recorder) settle(ctx context.Context, err error) *api.Error {
	switch {
	case err == nil && !r.full && ctx.Err() == nil: // 1.
		r.WriteHeader(http.StatusOK)
		return nil
	case ctx.Err() != nil: // 2.
		return api.AsError(ctx.Err())
	case r.full: // 3.
		return api.Errorf(http.StatusBadGateway, api.CodeTooLarge, "the runtime's answer is larger than the limit of %s: ask for less, or without an envelope", api.Bytes(r.limit))
	case errors.Is(err, http.ErrAbortHandler): // 4.
		return api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the runtime cut its answer short")
	}
	return api.Errorf(http.StatusInternalServerError, "", "%v", err)
}

// fail replaces the answer by an error.
func (r *recorder) fail(e *api.Error) {
	r.status, r.full, r.limit = 0, false, r.limit+maxPath // there is always room for an error
	r.body.b = r.body.b[:0]
	clear(r.header)
	api.WriteError(r, e)
}

// unpack decodes a compressed body; one that it can't decode stays as it is,
// with the header that says how it is encoded.
func (r *recorder) unpack() {
	switch encoding := strings.ToLower(r.header.Get("Content-Encoding")); encoding {
	case "", "identity":
		delete(r.header, "Content-Encoding")
	case "gzip", "x-gzip":
		in, err := gzip.NewReader(bytes.NewReader(r.body.b))
		if err != nil {
			return
		}
		out := buffers.get()
		w := bytes.NewBuffer(out.b)
		n, err := io.Copy(w, io.LimitReader(in, r.limit+1))
		out.b = w.Bytes()
		if err != nil || n > r.limit {
			buffers.put(out)
			if n > r.limit {
				r.full = true
			}
			return
		}
		buffers.put(r.body)
		r.body = out
		delete(r.header, "Content-Encoding")
	}
}
