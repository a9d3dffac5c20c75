package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// anyPath is how metrics name the paths of a runtime that is no model server.
const anyPath = "/…"

// mostLeft bounds how long a container may go on with a request whose client has left.
const mostLeft = 30 * time.Second

// idle is shorter than the time after which common servers close an idle connection.
const idle = 3 * time.Second

// transports reach a runtime that is no model server: it is spoken to as its client speaks.
type transports struct{ http1, http2 *http.Transport }

func newTransports(single bool) *transports {
	var cleartext http.Protocols
	cleartext.SetUnencryptedHTTP2(true)
	http1, http2 := api.NewTransport(64), api.NewTransport(64)
	http2.Protocols = &cleartext
	http1.DisableKeepAlives = single
	http1.IdleConnTimeout, http2.IdleConnTimeout = idle, idle
	return &transports{http1, http2}
}

// outlive returns a context for a request over HTTP/1 that goes on when its client leaves, and a function to call when it has
// ended. The container is told by the end of what it gets, and keeps its place until it has answered or [mostLeft] has passed:
// else the next request would come while it still works on this one, and it would have more than containerConcurrency at once.
func (t *transports) outlive(client context.Context) (ctx context.Context, ended func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	var mu sync.Mutex
	var conn net.Conn // guarded by mu
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		if half, can := conn.(interface{ CloseWrite() error }); can {
			_ = half.CloseWrite() // where that fails the container has closed it
		}
	}
	stop := context.AfterFunc(client, func() {
		leave()
		time.AfterFunc(mostLeft, func() { cancel(context.Cause(client)) })
	})
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		mu.Lock()
		conn = info.Conn
		mu.Unlock()
		if client.Err() != nil {
			leave()
		}
	}})
	return ctx, func() {
		if !stop() {
			t.http1.CloseIdleConnections() // nothing can be sent over this one any more
		}
		cancel(nil)
	}
}

// RoundTrip sends by the protocol that the client's request came by.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(overHTTP2{}) != nil {
		return t.http2.RoundTrip(r)
	}
	return t.http1.RoundTrip(r)
}

type overHTTP2 struct{}

// serveEverything passes a request on whatever its path is: bodies stream both ways, connections may be upgraded, and
// HTTP/2 without TLS stays that.
//
//  1. The kubelet's probes are answered while the runtime is not up: a container is not started anew because it sleeps.
//  2. The request gets its place in the runtime, or is refused.
//  3. What the runtime answers is passed on as it comes.
func (p *Proxy) serveEverything(w http.ResponseWriter, r *http.Request) {
	x := exchange{proxy: p, w: w, r: r, began: time.Now()}
	x.outcome.Path = anyPath
	probe := strings.HasPrefix(r.Header.Get("User-Agent"), "kube-probe/") || r.Header.Get("K-Network-Probe") != ""
	base, inside, validated, refused := x.enter(probe)
	if refused != nil {
		if probe { // 1.
			w.WriteHeader(http.StatusOK)
			return
		}
		x.turnAway(refused)
		p.cfg.Observe(x.outcome)
		return
	}
	defer p.cfg.Gate.Leave()
	x.live = p.load.begin("", int(max(r.ContentLength, 0)))
	defer x.live.end()
	x.everything(inside, base, validated)
	if probe {
		return
	}
	x.outcome.Total = time.Since(x.began)
	p.cfg.Observe(x.outcome)
	if x.outcome.abort {
		panic(http.ErrAbortHandler)
	}
}

// enter gets the request its place, behind a wake where it came behind one.
func (x *exchange) enter(probe bool) (base string, inside context.Context, validated func() *api.Error, refused *api.Error) {
	if probe {
		base, refused = x.proxy.cfg.Gate.EnterProbe()
		return base, x.r.Context(), nil, refused
	}
	if _, behind := x.r.Header[control.HeaderWait]; behind {
		delete(x.r.Header, control.HeaderWait)
		return x.proxy.cfg.Gate.EnterBehind(x.r.Context(), control.MostWait)
	}
	base, refused = x.proxy.cfg.Gate.Enter()
	return base, x.r.Context(), nil, refused
}

// everything passes one request on that has its place.
func (x *exchange) everything(ctx context.Context, base string, validated func() *api.Error) {
	if x.r.ProtoMajor == 1 && validated == nil && x.r.Header.Get("Upgrade") == "" {
		var ended func()
		ctx, ended = x.proxy.everything.outlive(ctx)
		defer ended()
	}
	if timeout := x.proxy.cfg.Timeout; timeout > 0 && x.r.Header.Get("Upgrade") == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, x.began.Add(timeout))
		defer cancel()
	}
	if x.r.ProtoMajor == 2 {
		ctx = context.WithValue(ctx, overHTTP2{}, true)
	}
	out := http.NewResponseController(x.w)
	_ = out.SetReadDeadline(time.Time{}) // a body may stream for as long as it likes; a writer without deadlines needs none
	target := &url.URL{Scheme: "http", Host: strings.TrimPrefix(base, "http://")}
	through := httputil.ReverseProxy{
		Transport: x.proxy.everything, FlushInterval: -1, ErrorLog: slog.NewLogLogger(x.proxy.cfg.Logger.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = target.Scheme, target.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v := pr.In.Header[name]; v != nil {
					pr.Out.Header[name] = v
				}
			}
			if pr.Out.Header["Forwarded"] == nil {
				if v := forwarded(pr.In.Header); v != "" {
					pr.Out.Header["Forwarded"] = []string{v}
				}
			}
			x.private(pr.Out.Header)
			x.outcome.Sent = time.Since(x.began)
		},
		ModifyResponse: func(resp *http.Response) error {
			if validated != nil {
				if refused := validated(); refused != nil {
					return refused
				}
			}
			x.proxy.cfg.Gate.Moved()
			x.live.answered()
			x.outcome.FirstByte, x.outcome.Status = time.Since(x.began), resp.StatusCode
			if resp.StatusCode != http.StatusSwitchingProtocols {
				resp.Body = moves{resp.Body, x.proxy.cfg.Gate}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { x.unpassed(ctx, err) },
	}
	defer func() {
		if cut := recover(); cut != nil { // the proxy's way to say that one side has left in mid-answer
			if err, is := cut.(error); !is || !errors.Is(err, http.ErrAbortHandler) {
				panic(cut)
			}
			x.outcome.Code, x.outcome.abort = api.CodeStreamCut, true
		}
	}()
	through.ServeHTTP(x.w, x.r.WithContext(ctx))
}

// forwarded returns the header Forwarded (RFC 7239) that says what X-Forwarded-For, -Host and -Proto say, as Knative's
// queue-proxy makes it: host and proto stand in the first element. It is empty where there are none of them.
func forwarded(h http.Header) string {
	var first []string
	nodes := strings.Split(strings.Join(h["X-Forwarded-For"], ","), ",")
	for i, node := range nodes {
		node = strings.TrimSpace(node)
		if strings.Contains(node, ":") {
			node = `"[` + node + `]"`
		}
		nodes[i] = "for=" + node
	}
	if len(h["X-Forwarded-For"]) > 0 {
		first = nodes[:1:1]
	}
	for _, name := range []string{"Host", "Proto"} {
		if v := h.Get("X-Forwarded-" + name); v != "" {
			first = append(first, strings.ToLower(name)+"="+v)
		}
	}
	nodes[0] = strings.Join(first, ";")
	return strings.Join(nodes, ", ")
}

// turnAway says that the runtime has not seen the request. Its body may have no end, and is left to the server.
func (x *exchange) turnAway(err *api.Error) {
	x.w.Header().Set(control.HeaderRefused, err.Code)
	x.fail(err)
}

// unpassed answers for a runtime that did not.
func (x *exchange) unpassed(ctx context.Context, err error) {
	var refused *api.Error
	switch {
	case errors.As(err, &refused), errors.As(context.Cause(ctx), &refused):
		x.turnAway(refused)
	case ctx.Err() != nil:
		x.fail(ctx.Err())
	case relay.Unreachable(err):
		x.proxy.cfg.Gate.Unreachable()
		x.turnAway(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the runtime can't be reached"))
	default:
		x.log("runtime failed before its answer", err)
		x.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime failed before it answered"))
	}
}

// moves is an answer's body, whose parts say that the runtime does not hang.
type moves struct {
	io.ReadCloser
	gate Gate
}

// Read reads a part.
func (m moves) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.gate.Moved()
	}
	return n, err
}

// Close closes the body once it has ended: where that is not so, the client has left.
func (m moves) Close() error {
	_, _ = io.Copy(io.Discard, m) // an error is its end too
	return m.ReadCloser.Close()
}
