package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"
)

const attempts = 4

type proxy struct {
	table    *atomic.Pointer[table]
	backends backends
	public   bool
	log      *slog.Logger
	reverse  *httputil.ReverseProxy
	plain    *http.Transport
	multi    *http.Transport
}

type target struct {
	route *route
	split *split
}

type targetKey struct{}

func newProxy(t *atomic.Pointer[table], b backends, public bool, log *slog.Logger) *proxy {
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 30 * time.Second}
	http2 := new(http.Protocols)
	http2.SetUnencryptedHTTP2(true)
	p := &proxy{
		table: t, backends: b, public: public, log: log,
		plain: &http.Transport{
			DialContext: dialer.DialContext, DisableCompression: true,
			MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute,
		},
		multi: &http.Transport{DialContext: dialer.DialContext, DisableCompression: true, Protocols: http2},
	}
	p.reverse = &httputil.ReverseProxy{
		Transport: p, FlushInterval: -1, Rewrite: rewrite, ErrorHandler: p.failed,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found := p.table.Load().find(r.Host, r.URL.Path, r.Header, p.public)
	if found == nil {
		http.Error(w, "no route leads from "+r.Host, http.StatusNotFound)
		return
	}
	to := target{route: found, split: found.pick(rand.IntN(max(1, found.total)))}
	r = r.WithContext(context.WithValue(r.Context(), targetKey{}, to))
	if err := gather(r); err != nil {
		panic(http.ErrAbortHandler) // the client is gone, or sends no body
	}
	e := &eager{ResponseWriter: w, flush: http.NewResponseController(w).Flush}
	defer e.end()
	p.reverse.ServeHTTP(e, r)
}

// small bounds a body that is sent with its header.
const small = 64 << 10

// gather reads a small body, so that header and body leave in one packet, as from an ingress that is no Go program.
func gather(r *http.Request) error {
	if r.ContentLength <= 0 || r.ContentLength > small || r.Header.Get("Expect") != "" {
		return nil
	}
	raw := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, raw); err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return nil
}

// eager is an answer whose header waits a moment for the first bytes of the body.
type eager struct {
	http.ResponseWriter
	flush func() error

	mu    sync.Mutex // guards what follows, and the writer until its first bytes
	began bool
	over  bool
	late  *time.Timer // flushes the header; nil: it was not asked to
}

const moment = time.Millisecond

func (e *eager) Write(p []byte) (int, error) {
	e.mu.Lock()
	e.began = true
	e.mu.Unlock()
	return e.ResponseWriter.Write(p)
}

// FlushError flushes what was written, or has the header flushed in a moment.
func (e *eager) FlushError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.began {
		return e.flush()
	}
	if e.late == nil {
		e.late = time.AfterFunc(moment, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if !e.began && !e.over {
				_ = e.flush() // the client is gone
			}
		})
	}
	return nil
}

// end ends what flushes later: the writer is not used any more.
func (e *eager) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.late != nil {
		e.late.Stop()
	}
}

// Unwrap lets connections be hijacked.
func (e *eager) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func rewrite(r *httputil.ProxyRequest) {
	to := r.In.Context().Value(targetKey{}).(target)
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = to.split.service // RoundTrip finds an address for it
	r.Out.Host = r.In.Host
	if to.route.host != "" {
		r.Out.Host = to.route.host
	}
	r.SetXForwarded()
	for name, value := range to.route.headers {
		r.Out.Header.Set(name, value)
	}
	for name, value := range to.split.headers {
		r.Out.Header.Set(name, value)
	}
}

var errNobody = errors.New("the service has no endpoints")

// RoundTrip sends a request to one of its service's addresses. Nothing of it is gone when a dial fails.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	to := r.Context().Value(targetKey{}).(target)
	addrs, http2 := p.backends.find(to.split)
	if len(addrs) == 0 {
		return nil, errNobody
	}
	transport := p.plain
	if http2 {
		transport = p.multi
	}
	if r.Body != nil {
		r.Body = io.NopCloser(r.Body) // a transport that fails closes it; the reverse proxy does at the end
	}
	first := rand.IntN(len(addrs))
	for n := 0; ; n++ {
		r.URL.Host = addrs[(first+n)%len(addrs)]
		resp, err := transport.RoundTrip(r)
		var op *net.OpError
		if err == nil || !errors.As(err, &op) || op.Op != "dial" || n+1 >= min(attempts, len(addrs)) {
			return resp, err
		}
	}
}

func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client is gone
	}
	p.log.Warn("a request failed", "host", r.Host, "path", r.URL.Path, "error", err)
	status := http.StatusBadGateway
	if errors.Is(err, errNobody) {
		status = http.StatusServiceUnavailable
	}
	http.Error(w, fmt.Sprintf("mini-ingress: %v", err), status)
}
