package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
)

// Instance is an instance in this process. Its methods are safe for many goroutines.
type Instance struct {
	// End starts to end the instance and returns at once: requests finish within the configured drain.
	End func()
	// Kill ends the runtime without a drain and returns at once.
	Kill func()

	function *function
	exited   chan struct{}
	err      error // written before exited is closed
}

// Start returns at once. Requests come by [Instance.RoundTrip], and at cfg.Listen if that is set. Start takes over parent, a shim for the
// runtime; nil: cfg.Keep says how to start one.
func Start(cfg Config, parent *shim.Client) (*Instance, error) {
	err := cfg.Validate()
	var listener net.Listener
	switch {
	case err != nil:
	case cfg.Join != nil || cfg.Workers != "":
		err = fmt.Errorf("function %s: an instance of a cluster, or one that shares its runtime, is a process: Run runs it", cfg.Function.Name)
	case cfg.Listen != "":
		if listener, cfg.Listen, err = listen(cfg.Listen); err != nil {
			err = fmt.Errorf("function %s: %w", cfg.Function.Name, err)
		}
	}
	if err != nil {
		if parent != nil {
			parent.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	kill := make(chan struct{})
	cfg.Kill = kill
	f, run, err := begin(ctx, cfg, listener, parent)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("function %s: %w", cfg.Function.Name, err)
	}
	i := &Instance{End: cancel, Kill: sync.OnceFunc(func() { close(kill) }), function: f, exited: make(chan struct{})}
	go func() {
		defer close(i.exited)
		defer cancel()
		i.err = run(ctx)
	}()
	return i, nil
}

// begin takes over listener and parent; both may be nil.
func begin(ctx context.Context, cfg Config, listener net.Listener, parent *shim.Client) (f *function, run func(context.Context) error, err error) {
	clean, err := prepare(&cfg)
	release := func() {
		if parent != nil {
			parent.Close()
		}
		clean()
	}
	log := process.NewLog(logLines, cfg.Output)
	if err == nil && parent == nil {
		parent, err = keep(ctx, cfg, log)
	}
	if err == nil {
		f, err = assemble(cfg, log, parent, nil)
	}
	if err != nil {
		release()
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return nil, nil, err
	}
	return f, func(ctx context.Context) error {
		defer release()
		return f.run(ctx, serve(cfg, listener, f))
	}, nil
}

// Exited returns a channel that is closed when nothing of the instance is left.
func (i *Instance) Exited() <-chan struct{} { return i.exited }

// Err returns why the instance has ended, nil if it was told to. It is valid once [Instance.Exited] is closed.
func (i *Instance) Err() error { return i.err }

// State returns the instance's status.
func (i *Instance) State() api.InstanceStatus { return i.function.supervisor.Status() }

// Wake is [control.Client.Wake].
func (i *Instance) Wake(ctx context.Context, g api.Grant) (api.InstanceStatus, error) {
	return i.function.wake(ctx, g)
}

// Sleep is [control.Client.Sleep].
func (i *Instance) Sleep(ctx context.Context, r control.SleepRequest) (api.InstanceStatus, error) {
	return i.function.supervisor.Sleep(ctx, r)
}

// Fence is [control.Client.Fence].
func (i *Instance) Fence(ctx context.Context, r control.FenceRequest) (api.InstanceStatus, error) {
	return i.function.supervisor.Fence(ctx, r)
}

// Stop is [control.Client.Stop].
func (i *Instance) Stop(ctx context.Context, r control.StopRequest) (api.InstanceStatus, error) {
	return i.function.supervisor.Stop(ctx, r)
}

// Adapters is [control.Client.Adapters].
func (i *Instance) Adapters(ctx context.Context, r control.AdaptersRequest) (api.InstanceStatus, error) {
	return i.function.declare(ctx, r)
}

// RoundTrip implements [http.RoundTripper]. One goroutine must read the answer's body.
func (i *Instance) RoundTrip(r *http.Request) (*http.Response, error) {
	return roundTrip(i.function, r, i.function.cfg.Logger)
}

// roundTrip has h answer r without a connection. h runs as a coroutine of the answer's reader: it runs while the reader waits, and pauses
// when it has written enough or flushes. h must call its ResponseWriter in the goroutine that it was called in.
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
		_ = body.Close()
	})
	part, more := w.next()
	if !more && w.aborted {
		return nil, cmp.Or(context.Cause(r.Context()), errCut)
	}
	if w.sent == nil {
		w.WriteHeader(http.StatusOK)
	}
	resp := &w.resp
	*resp = http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: w.declared, Body: http.NoBody, Request: r, Trailer: resp.Trailer,
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

// growStack grows a new goroutine's stack while there is nothing to move; otherwise each request moves it midway.
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

// keptBack bounds the buffered part of an answer, in bytes.
const keptBack = 4 << 10

// answer is the [http.ResponseWriter] of a handler that runs as a coroutine; answerBody.mu guards it.
type answer struct {
	next   func() ([]byte, bool)
	stop   func()
	yield  func([]byte) bool
	cancel context.CancelFunc

	header   http.Header
	sent     http.Header // the header when the status was written; nil before
	status   int
	head     bool
	declared int64
	wrote    int64
	buf      []byte // written and not delivered
	part     []byte // delivered and not read
	left     bool   // the reader has gone
	ended    bool
	aborted  bool
	resp     http.Response
}

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
	for name, values := range w.header {
		if name, is := strings.CutPrefix(name, http.TrailerPrefix); is && !w.head {
			if w.resp.Trailer == nil {
				w.resp.Trailer = http.Header{}
			}
			w.resp.Trailer[name] = values
		}
	}
	if len(w.buf) > 0 && !w.aborted && !w.left {
		w.yield(w.buf)
	}
}

func (w *answer) Header() http.Header { return w.header }

// WriteHeader drops interim answers.
func (w *answer) WriteHeader(status int) {
	if w.sent != nil || status < http.StatusOK {
		return
	}
	w.status, w.sent = status, maps.Clone(w.header)
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.declared = n
	}
}

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

// give reports whether there still is a reader.
func (w *answer) give() bool {
	w.left = !w.yield(w.buf)
	w.buf = w.buf[:0] // the reader asks for more only after it has read all
	return !w.left
}

// FlushError and the next three serve [http.ResponseController]. Deadlines do nothing: there is no slow peer.
func (w *answer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.left || !w.give() {
		return errLeft
	}
	return nil
}

func (w *answer) SetReadDeadline(time.Time) error { return nil }

func (w *answer) SetWriteDeadline(time.Time) error { return nil }

func (w *answer) EnableFullDuplex() error { return nil }

type answerBody struct {
	mu sync.Mutex // guards all fields; held while the handler runs
	*answer

	ctx context.Context
	err error
}

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

// Close returns after the handler has.
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
