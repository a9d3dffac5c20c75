package functions

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// roundTrip has h answer r without a connection. h runs as a coroutine of the goroutine that reads the answer. It runs while the reader
// waits for the header or more of the body, and pauses when it has written enough or flushes. So data is neither copied through a pipe
// nor handed between goroutines. h must call its ResponseWriter in the goroutine that it was called in.
//
// Writes have the meaning that they have with net/http's server. A panic ends only the answer.
func roundTrip(h http.Handler, r *http.Request, log *slog.Logger) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	w := &answer{header: make(http.Header, 8), declared: -1, head: r.Method == http.MethodHead, cancel: cancel}
	in := r.WithContext(ctx)
	in.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	in.RequestURI, in.RemoteAddr, in.Header = in.URL.RequestURI(), "", maps.Clone(r.Header)
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/1.1", 1, 1
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body := in.Body
	if agent := in.Header["User-Agent"]; len(agent) == 1 && agent[0] == "" {
		delete(in.Header, "User-Agent") // net/http's way to send none
	}
	w.next, w.stop = iter.Pull(func(yield func([]byte) bool) {
		growStack()
		w.yield = yield
		w.serve(h, in, log)
		cancel()
		_ = body.Close() // already read, or not needed
	})
	part, more := w.next()
	if !more && w.aborted {
		return nil, cmp.Or(context.Cause(r.Context()), errCut)
	}
	if w.sent == nil {
		w.WriteHeader(http.StatusOK)
	}
	resp := &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: w.declared, Body: http.NoBody, Request: r,
	}
	if w.ended && w.declared < 0 && !w.head {
		resp.ContentLength = int64(len(part))
	}
	w.part = part
	if more || len(part) > 0 {
		resp.Body = &answerBody{answer: w, ctx: r.Context()}
	}
	return resp, nil
}

// growStack grows the stack of a new goroutine to what a handler needs, while there is nothing to move: otherwise it is doubled, and
// moved, in the middle of each request.
//
//go:noinline
func growStack() {
	var room [8 << 10]byte
	goruntime.KeepAlive(&room)
}

var (
	errCut  = errors.New("the instance ended its answer before it was complete")
	errLeft = errors.New("the reader of the answer left")
)

// keptBack bounds the buffered part of an answer. The buffer is delivered when it is full, on a flush, and at the end.
const keptBack = 4 << 10

// answer is the [http.ResponseWriter] of a handler that runs as a coroutine.
type answer struct {
	next   func() ([]byte, bool)
	stop   func()
	yield  func([]byte) bool
	cancel context.CancelFunc

	header   http.Header
	sent     http.Header // the header when the status was written; nil before
	status   int
	head     bool // the request is a HEAD
	declared int64
	wrote    int64
	buf      []byte // written and not delivered
	part     []byte // delivered and not read
	left     bool   // the reader has gone
	ended    bool   // the handler has returned
	aborted  bool   // the handler has panicked
}

// serve calls the handler, and delivers the rest of the buffer.
func (w *answer) serve(h http.Handler, r *http.Request, log *slog.Logger) {
	func() {
		defer func() {
			if v := recover(); v != nil {
				w.aborted = true
				if v != http.ErrAbortHandler {
					log.Error("panic in a request", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
				}
			}
		}()
		h.ServeHTTP(w, r)
	}()
	w.ended = true
	if len(w.buf) > 0 && !w.aborted && !w.left {
		w.yield(w.buf)
	}
}

// Header implements [http.ResponseWriter].
func (w *answer) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter]. Interim answers are not passed on.
func (w *answer) WriteHeader(status int) {
	if w.sent != nil || status < http.StatusOK {
		return
	}
	w.status, w.sent = status, maps.Clone(w.header)
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.declared = n
	}
}

// Write implements [http.ResponseWriter]. It does not keep p.
func (w *answer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.left:
		return 0, errLeft
	case w.status == http.StatusNoContent || w.status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case w.declared >= 0 && w.wrote+int64(len(p)) > w.declared:
		return 0, http.ErrContentLength
	}
	if w.wrote += int64(len(p)); w.head {
		return len(p), nil
	}
	if len(w.buf)+len(p) <= keptBack {
		w.buf = append(w.buf, p...)
		return len(p), nil
	}
	if len(w.buf) > 0 && !w.give() {
		return 0, errLeft
	}
	if w.left = !w.yield(p); w.left {
		return 0, errLeft
	}
	return len(p), nil
}

// give delivers the buffer to the reader, and reports whether there still is one.
func (w *answer) give() bool {
	w.left = !w.yield(w.buf)
	w.buf = w.buf[:0] // the reader asks for more only after it has read all
	return !w.left
}

// FlushError, SetReadDeadline, SetWriteDeadline and EnableFullDuplex serve [http.ResponseController]. The deadlines do nothing: there is
// no slow peer.
func (w *answer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.left || !w.give() {
		return errLeft
	}
	return nil
}

// SetReadDeadline does nothing.
func (w *answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (w *answer) SetWriteDeadline(time.Time) error { return nil }

// EnableFullDuplex does nothing.
func (w *answer) EnableFullDuplex() error { return nil }

type answerBody struct {
	mu sync.Mutex // guards all fields; held while the handler runs
	*answer

	ctx context.Context // of the request
	err error           // the reason of the end
}

// Read implements [io.Reader].
func (b *answerBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && b.ctx.Err() != nil {
		b.end(context.Cause(b.ctx))
	}
	for len(b.part) == 0 && b.err == nil {
		part, more := b.next()
		switch {
		case more:
			b.part = part
		case b.aborted, b.declared > b.wrote && !b.head:
			b.err = cmp.Or(context.Cause(b.ctx), errCut)
		default:
			b.err = io.EOF
		}
	}
	if len(b.part) == 0 {
		return 0, b.err
	}
	n := copy(p, b.part)
	b.part = b.part[n:]
	return n, nil
}

// Close implements [io.Closer]. It returns after the handler has.
func (b *answerBody) Close() error {
	b.cancel() // also ends a Read
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(http.ErrBodyReadAfterClose)
	return nil
}

// end stops the handler and discards the rest. The caller holds b.mu.
func (b *answerBody) end(err error) {
	b.stop()
	b.part, b.err = nil, cmp.Or(b.err, err)
}
