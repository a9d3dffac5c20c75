package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Gate lets requests into the runtime. Enter returns the runtime's base URL and
// takes a place that Leave gives back, or refuses.
type Gate interface {
	Enter() (base string, refused *api.Error)
	Leave()
	// Moved is called for each part of an answer that comes from the runtime.
	Moved()
}

// Dialect is how the runtime's HTTP differs from the clients', see runtime.Dialect.
type Dialect interface {
	Request(path string, body []byte) ([]byte, *api.Error)
	Failure(path string, status int, body []byte) []byte
}

// Config of a [Proxy].
type Config struct {
	Gate Gate
	// Dialect; nil: the runtime speaks as clients do.
	Dialect Dialect
	// Transport reaches the runtime.
	Transport http.RoundTripper
	// MaxBody bounds a request's body; 0: 64 MiB.
	MaxBody api.Bytes
	// Timeout bounds a request from its arrival to its last byte; 0: no bound.
	Timeout time.Duration
	// Observe gets the outcome of each request, from its goroutine; nil: nobody.
	Observe func(Outcome)
	// Logger; nil: none.
	Logger *slog.Logger
}

// Outcome is how one request went.
type Outcome struct {
	// Path is the pattern of its route.
	Path string
	// Status is the answer's, or [api.StatusClientClosed].
	Status int
	// Code is the code of an error of ours; empty: none.
	Code string
	// FirstByte and Total are the times from its arrival; FirstByte is 0 where there was none.
	FirstByte, Total time.Duration
	// abort says that the connection must be aborted.
	abort bool
}

// Proxy is the handler of the client paths.
type Proxy struct {
	cfg Config
}

// New makes a proxy.
func New(cfg Config) *Proxy {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 64 * api.MiB
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Outcome) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Proxy{cfg: cfg}
}

// ServeHTTP answers one request. It panics with [http.ErrAbortHandler] where the
// connection must not end well.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, found := lookUp(r.Method, r.URL.Path)
	if !found {
		api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "%s %s is not served here", r.Method, r.URL.Path))
		return
	}
	x := exchange{proxy: p, w: w, r: r, route: route, began: time.Now()}
	x.outcome.Path = route.pattern
	x.serve()
	x.outcome.Total = time.Since(x.began)
	p.cfg.Observe(x.outcome)
	if x.outcome.abort {
		panic(http.ErrAbortHandler)
	}
}

// exchange is one request and its answer.
type exchange struct {
	proxy   *Proxy
	w       http.ResponseWriter
	r       *http.Request
	route   route
	began   time.Time
	outcome Outcome
}

func (x *exchange) serve() {
	base, refused := x.proxy.cfg.Gate.Enter()
	if refused != nil {
		x.refuse(refused)
		return
	}
	defer x.proxy.cfg.Gate.Leave()
	body, err := x.body()
	if err != nil {
		x.fail(err)
		return
	}
	ctx := x.r.Context()
	if x.proxy.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.proxy.cfg.Timeout)
		defer cancel()
	}
	resp, err := x.proxy.cfg.Transport.RoundTrip(outbound(ctx, x.r, base, body))
	if err != nil {
		x.unanswered(ctx, err)
		return
	}
	defer resp.Body.Close()
	x.outcome.Status = resp.StatusCode
	if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/event-stream") {
		x.stream(ctx, resp)
	} else {
		x.pass(ctx, resp, resp.ContentLength >= 0 || strings.HasPrefix(kind, "application/json"))
	}
}

// refuse answers that the runtime has not seen the request. The body is read
// first: a connection closed on an unread one can lose the answer.
func (x *exchange) refuse(err *api.Error) {
	_, _ = io.Copy(io.Discard, io.LimitReader(x.r.Body, int64(x.proxy.cfg.MaxBody)))
	x.w.Header().Set(control.HeaderRefused, err.Code)
	x.fail(err)
}

// fail answers with an error of ours. Nothing was sent before.
func (x *exchange) fail(err error) {
	e := api.AsError(err)
	x.outcome.Status, x.outcome.Code = e.Status, e.Code
	if e.Status == api.StatusClientClosed {
		x.outcome.abort = true // there is nobody to answer
		return
	}
	api.WriteError(x.w, e)
}

// unanswered deals with a request that got no answer: 1. the client left or its
// time is up; 2. there was no connection, so the runtime has not seen it; 3. the
// runtime failed.
func (x *exchange) unanswered(ctx context.Context, err error) {
	var dial *net.OpError
	switch {
	case ctx.Err() != nil:
		x.fail(ctx.Err())
	case errors.As(err, &dial) && dial.Op == "dial":
		x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the runtime can't be reached: %v", dial.Err))
	default:
		x.proxy.cfg.Logger.Warn("runtime failed before its answer", "path", x.route.pattern, "error", err)
		x.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime failed before it answered: %v", err))
	}
}

// body reads the whole body.
func (x *exchange) body() ([]byte, error) {
	limit := int64(x.proxy.cfg.MaxBody)
	if x.r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	var body []byte
	var err error
	if n := x.r.ContentLength; n >= 0 {
		body = make([]byte, n)
		_, err = io.ReadFull(x.r.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, limit))
	}
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return body, err
	}
	if x.r.Context().Err() != nil {
		return nil, x.r.Context().Err()
	}
	return nil, api.BadRequest("", "read the request's body: %v", err)
}

// buffers are what answers are read into.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// pass passes an answer on that is no stream of events. With hold, what fits
// into one buffer is read to its end before anything is sent.
func (x *exchange) pass(ctx context.Context, resp *http.Response, hold bool) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	n, err := 0, error(nil)
	for n < len(buf) && err == nil && (hold || n == 0) {
		var m int
		m, err = resp.Body.Read(buf[n:])
		n += m
	}
	if err != nil && err != io.EOF {
		x.brokenBeforeFirstByte(ctx, err)
		return
	}
	x.header(resp)
	for {
		if n > 0 {
			if _, werr := x.w.Write(buf[:n]); werr != nil {
				x.outcome.Status, x.outcome.abort = api.StatusClientClosed, true
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			x.proxy.cfg.Logger.Warn("runtime cut its answer", "path", x.route.pattern, "error", err)
			x.outcome.Code, x.outcome.abort = api.CodeStreamCut, true
			return
		}
		if !hold {
			x.flush()
		}
		n, err = resp.Body.Read(buf[:])
	}
}

// brokenBeforeFirstByte answers for a runtime whose answer broke off before any
// of it was sent.
func (x *exchange) brokenBeforeFirstByte(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		err = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime cut its answer short: %v", err)
	}
	x.fail(err)
}

// header sends status and headers.
func (x *exchange) header(resp *http.Response) {
	x.outcome.FirstByte = time.Since(x.began)
	copyHeader(x.w.Header(), resp.Header)
	x.w.WriteHeader(resp.StatusCode)
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}
