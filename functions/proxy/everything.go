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

const anyPath = "/…"

const mostLeft = 30 * time.Second

// Below the time after which common servers close an idle connection.
const idle = 3 * time.Second

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

// outlive returns a context that survives the client's leave, for a request over HTTP/1. The container sees the end of its input, and the
// request keeps its slot until the answer or [mostLeft], as the container still works on it. The caller calls ended after the request.
func (t *transports) outlive(client context.Context) (ctx context.Context, ended func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	var mu sync.Mutex
	var conn net.Conn // guarded by mu
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		if half, can := conn.(interface{ CloseWrite() error }); can {
			_ = half.CloseWrite()
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
			t.http1.CloseIdleConnections() // this connection can carry no further request
		}
		cancel(nil)
	}
}

func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(overHTTP2{}) != nil {
		return t.http2.RoundTrip(r)
	}
	return t.http1.RoundTrip(r)
}

type overHTTP2 struct{}

// serveEverything passes on a request of any path. Bodies stream both ways, connections may be upgraded, and HTTP/2 without TLS stays
// HTTP/2. While the runtime is not up, the kubelet's probes get 200: a container must not restart because it sleeps.
func (p *Proxy) serveEverything(w http.ResponseWriter, r *http.Request) {
	x := exchange{Proxy: p, w: w, r: r, began: time.Now()}
	if x.outcome.Path = anyPath; !p.cfg.Everything {
		x.outcome.Path = api.PathRealtime
	}
	defer func() {
		if x.body != nil {
			x.r.Body.Close()
			x.body.Release()
		}
	}()
	probe := strings.HasPrefix(r.Header.Get("User-Agent"), "kube-probe/") || r.Header.Get("K-Network-Probe") != ""
	delete(r.Header, control.HeaderWait) // a container must not do work whose answer may be thrown away
	place, refused, err := x.enter(probe, x.readKnown)
	if probe && refused != nil {
		AnswersProbe(w, r) // 200 to others, without content
		return
	}
	switch {
	case refused != nil:
		x.refuse(refused)
	case err != nil:
		x.fail(err)
	default:
		defer place.leave()
		x.live = p.load.begin("", int(max(r.ContentLength, 0)))
		defer x.live.end()
		if x.everything(place.inside, place.base); probe {
			return
		}
	}
	p.cfg.Observe(x.outcome)
	if x.outcome.abort {
		panic(http.ErrAbortHandler)
	}
}

// PathGRPCHealth is the path of gRPC's health check.
const PathGRPCHealth = "/grpc.health.v1.Health/Check"

// AnswersProbe answers r, and reports true, if it asks whether the process lives.
func AnswersProbe(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz":
		AnswerOK(w)
	case PathGRPCHealth:
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, 1}) // the message SERVING
	default:
		return false
	}
	return true
}

// AnswerOK answers a probe with success.
func AnswerOK(w http.ResponseWriter) {
	api.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// RefuseMethod answers 405; allow lists the methods that the path has.
func RefuseMethod(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want %s", r.Method, r.URL.Path, allow))
}

// readKnown reads a body of known length before its request waits: only then is a client that leaves noticed.
func (x *exchange) readKnown() (err error) {
	if door := x.cfg.Door; x.r.ContentLength > 0 && door.Fits(x.r) {
		if x.body, err = door.Read(x.w, x.r, Client(x.r)); err == nil {
			x.r.Body = x.body.Reader()
		}
	}
	return err
}

// withoutQueue drops [control.HeaderQueue] from a container's interim answers.
type withoutQueue struct{ http.ResponseWriter }

func (w withoutQueue) WriteHeader(status int) {
	if status < http.StatusOK {
		delete(w.Header(), control.HeaderQueue)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w withoutQueue) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (x *exchange) everything(ctx context.Context, base string) {
	bounded := x.r.Header.Get("Upgrade") == ""
	if x.r.ProtoMajor == 1 && bounded {
		var ended func()
		ctx, ended = x.Proxy.everything.outlive(ctx)
		defer ended()
	}
	if timeout := x.cfg.Timeout; timeout > 0 && bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, x.began.Add(timeout))
		defer cancel()
	}
	if x.r.ProtoMajor == 2 {
		ctx = context.WithValue(ctx, overHTTP2{}, true)
	}
	out := http.NewResponseController(x.w)
	_ = out.EnableFullDuplex()           // else the server takes the rest of the body once the answer begins (golang/go#40747)
	_ = out.SetReadDeadline(time.Time{}) // a body may stream for any time; a writer without deadlines needs none
	target := &url.URL{Scheme: "http", Host: strings.TrimPrefix(base, "http://")}
	through := httputil.ReverseProxy{
		Transport: x.Proxy.everything, FlushInterval: -1, ErrorLog: slog.NewLogLogger(x.cfg.Logger.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = target.Scheme, target.Host
			if x.cfg.Everything {
				pr.Out.URL.RawQuery = pr.In.URL.RawQuery // also what Go can't parse, as in Knative
			} else if host := x.cfg.Host; host != "" {
				pr.Out.Host = host
			}
			relay.CopyForwarded(pr.Out.Header, pr.In.Header)
			if pr.Out.Header["Forwarded"] == nil {
				if v := forwarded(pr.In.Header); v != "" {
					pr.Out.Header["Forwarded"] = []string{v}
				}
			}
			x.private(pr.Out.Header)
			x.outcome.Sent = time.Since(x.began)
		},
		ModifyResponse: func(resp *http.Response) error {
			x.cfg.Gate.Moved()
			delete(resp.Header, control.HeaderQueue)
			x.live.answered()
			x.outcome.FirstByte, x.outcome.Status = time.Since(x.began), resp.StatusCode
			if resp.StatusCode != http.StatusSwitchingProtocols {
				resp.Body = drained{x.moving(resp)}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			x.unanswered(ctx, err)
		},
	}
	defer func() {
		if cut := recover(); cut != nil {
			if err, is := cut.(error); !is || !errors.Is(err, http.ErrAbortHandler) {
				panic(cut)
			}
			x.outcome.Code, x.outcome.abort = api.CodeStreamCut, true
			if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) && x.w.Header().Get("Content-Length") == "" {
				late := api.AsError(err)
				x.outcome.Code, x.outcome.abort = late.Code, false
				x.write([]byte(late.Message)) // as in Knative and in activators, whose time is up at the same moment
			}
		}
	}()
	through.ServeHTTP(withoutQueue{x.w}, x.r.WithContext(ctx))
}

// forwarded returns the header Forwarded (RFC 7239), as Knative's queue-proxy builds it: host and proto stand in the first element.
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

// drained reads the answer's body to its end on Close: the end comes if the client has left too.
type drained struct{ moving }

func (d drained) Close() error {
	_, _ = io.Copy(io.Discard, d)
	return d.moving.Close()
}
