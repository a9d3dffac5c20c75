package activator

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Upgrades (WebSockets), also of the Realtime API, and gRPC stream both ways: they are not read in advance, and not
// sent again once a part of their body was.

// isPlain: no model server, whose requests are not parsed.
func isPlain(f *queue.Function) bool { return f.Spec().Runtime.Kind == api.RuntimeHTTP }

// streams reports whether a request is forwarded while it arrives.
func (r *request) streams() bool {
	return r.plain && r.via == nil && (r.in.ProtoMajor == 2 || upgrades(r.in))
}

func (c *call) findRealtime() *api.Error {
	if isPlain(c.f) {
		return nil
	}
	query := c.req.in.URL.Query()
	if len(query["model"]) > 1 {
		return api.BadRequest("model", "the query names several models: want one ?model=NAME")
	}
	for name := range query {
		if name != "model" && name != "intent" { // all that clients of OpenAI's API send; a runtime may understand others
			return api.BadRequest(clip(name), "the query has the parameter %s: %s takes model and intent", quoteName(name), api.PathRealtime)
		}
	}
	c.req.Model = query.Get("model")
	if c.req.adapter = c.a.names.Load().adapter(c.req.Model, c.f); c.req.adapter != "" {
		return api.BadRequest("model", "%s is an adapter, which %s can't choose: name its model", quoteName(c.req.Model), api.PathRealtime)
	}
	return lacksPath(c.f, api.PathRealtime)
}

func upgrades(r *http.Request) bool { return r.Header.Get("Upgrade") != "" && r.ProtoMajor == 1 }

func bodiless(r *http.Request) *http.Request {
	out := new(http.Request)
	*out = *r
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, 0, nil
	return out
}

type streamTransports struct{ http1, http2 http.RoundTripper }

func newStreamTransports(dial func(ctx context.Context, network, address string) (net.Conn, error)) streamTransports {
	var cleartext http.Protocols
	cleartext.SetUnencryptedHTTP2(true)
	http1, http2 := api.NewTransport(16), api.NewTransport(16)
	if dial != nil {
		http1.DialContext, http2.DialContext = dial, dial
	}
	http2.Protocols = &cleartext
	return streamTransports{http1, http2}
}

// again: the instance did not accept it and consumed nothing; cut: the answer ended early.
func (c *call) pass(s *queue.Slot) (again, cut bool, err error) {
	sent := time.Now()
	var untouched atomic.Bool
	untouched.Store(true)
	c.sent.attempts++
	_ = c.reply.out.SetReadDeadline(time.Time{}) // a body may stream for any length of time
	first := c.limit(s.Spec.FirstByteTimeout, beganTooLate)
	defer first.stop()
	attempt := c.attempt(s.Target)
	attempt.Turn = c.quietTurn(s)
	through := httputil.ReverseProxy{FlushInterval: -1, Transport: c.a.streams.http1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = s.Base.Scheme, s.Base.Host
			relay.CopyForwarded(pr.Out.Header, pr.In.Header)
			for name := range pr.Out.Header {
				if control.Reserved(name) {
					delete(pr.Out.Header, name)
				}
			}
			attempt.Head(pr.Out.Header)
			if isPlain(c.f) {
				pr.Out.URL.RawQuery = pr.In.URL.RawQuery // also what Go can't parse, as in Knative
			} else {
				pr.Out.Header.Del("Sec-WebSocket-Extensions") // usage can't be read of compressed events
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if code := resp.Header.Get(control.HeaderRefused); code != "" && resp.StatusCode >= http.StatusInternalServerError {
				return &forward.Failure{Code: code, Err: api.Errorf(http.StatusServiceUnavailable, code, "the instance refused the request: %s", code)}
			}
			c.begins(resp, s, sent, first)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, e error) { err = e },
	}
	if c.req.in.ProtoMajor == 2 {
		through.Transport = c.a.streams.http2
	}
	in := c.req.in.WithContext(c.ctx)
	if in.Body != nil && in.Body != http.NoBody {
		in.Body = touched{in.Body, &untouched}
	}
	c.reply.unread.Timeout = 0 // these clients may leave data unread: nobody waits
	cut = passed(&through, passing{c.reply.w, c}, in)
	if up := c.sent.upgraded.Load(); up != nil && up.counts {
		up.mu.Lock()
		c.reply.usage = up.usage
		up.mu.Unlock()
		c.reply.usage.Reported = true
		c.spend(c.used())
	}
	var failed *forward.Failure
	switch {
	case err == nil:
		return false, cut, nil
	case c.ctx.Err() != nil:
		return false, false, context.Cause(c.ctx)
	case errors.As(err, &failed):
	default:
		failed = forward.Unanswered(err)
	}
	return untouched.Load() && !failed.Given, false, failed
}

// begins takes in the header of an instance's answer.
func (c *call) begins(resp *http.Response, s *queue.Slot, sent time.Time, first timeout) {
	c.reply.timing.First, c.reply.answered, c.reply.instance = time.Since(sent), resp.StatusCode, s.Instance
	c.want.Sent(sent, time.Now())
	c.want.FirstByte()
	c.reply.limits.Describe(resp.Header)
	for name := range resp.Header {
		if control.Reserved(name) {
			delete(resp.Header, name)
		}
	}
	resp.Header.Set(headerTiming, c.reply.timing.String())
	resp.Header.Set(headerInstance, string(s.Instance))
	if both, is := resp.Body.(io.ReadWriteCloser); is && resp.StatusCode == http.StatusSwitchingProtocols {
		up := newUpgraded(both, &c.reply.unread, cmp.Or(s.Spec.IdleTimeout, math.MaxInt64), func(idle time.Duration) { c.tooLate(idle, pausedTooLong) })
		up.first = first
		if !isPlain(c.f) {
			up.countUsage()
		}
		c.sent.upgraded.Store(up)
		resp.Body = up
		if offered := c.req.in.Header.Get(headerProtocols); offered != "" && !isPlain(c.f) && resp.Header.Get(headerProtocols) == "" {
			first, _, _ := strings.Cut(offered, ",") // browsers refuse an answer that chooses none
			resp.Header.Set(headerProtocols, first)
		}
	} else {
		first.stop()
	}
}

type passing struct {
	http.ResponseWriter
	c *call
}

// Write implements [io.Writer].
func (p passing) Write(b []byte) (int, error) { return p.c.reply.Write(b) }

// FlushError is for [http.ResponseController].
func (p passing) FlushError() error { return p.c.reply.flush() }

// The connection is closed when the call ends: a write to it may be stuck.
func (p passing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := p.c.reply.out.Hijack()
	if err == nil {
		context.AfterFunc(p.c.ctx, func() { _ = conn.Close() })
	}
	return conn, both, err
}

const drainIdle = 5 * time.Second

// upgraded ends the request when its connection is idle for too long.
type upgraded struct {
	io.ReadWriteCloser
	unread *relay.WriteDeadline
	idle   atomic.Int64
	timer  *time.Timer
	first  timeout // until the instance sends something: the answer's beginning, as in Knative

	counts bool
	mu     sync.Mutex // guards usage
	usage  relay.Usage
}

func newUpgraded(both io.ReadWriteCloser, unread *relay.WriteDeadline, idle time.Duration, end func(idle time.Duration)) *upgraded {
	u := &upgraded{ReadWriteCloser: both, unread: unread}
	u.timer = time.AfterFunc(math.MaxInt64, func() { end(time.Duration(u.idle.Load())) })
	u.limit(idle)
	return u
}

// countUsage adds up the usages of the instance's events, as those of a list. It is called before the first Read.
func (u *upgraded) countUsage() {
	u.counts = true
	u.usage.Part([]byte("["))
}

func (u *upgraded) limit(idle time.Duration) {
	u.idle.Store(int64(idle))
	u.timer.Reset(idle)
}

// Until the next Read, what it returned is written to the client.
func (u *upgraded) Read(p []byte) (int, error) {
	u.unread.Done()
	n, err := u.ReadWriteCloser.Read(p)
	u.first.stop()
	u.unread.Move(nil, n)
	if u.counts {
		u.mu.Lock()
		u.usage.Part(p[:n])
		u.mu.Unlock()
	}
	u.timer.Reset(time.Duration(u.idle.Load()))
	return n, err
}

// Write implements [io.Writer].
func (u *upgraded) Write(p []byte) (int, error) {
	u.timer.Reset(time.Duration(u.idle.Load()))
	return u.ReadWriteCloser.Write(p)
}

// Close implements [io.Closer].
func (u *upgraded) Close() error {
	u.idle.Store(math.MaxInt64)
	u.timer.Stop()
	return u.ReadWriteCloser.Close()
}

func (c *call) drains() {
	if u := c.sent.upgraded.Load(); u != nil {
		u.limit(min(time.Duration(u.idle.Load()), drainIdle))
	}
}

type touched struct {
	io.ReadCloser
	untouched *atomic.Bool
}

// Read implements [io.Reader].
func (t touched) Read(p []byte) (int, error) {
	t.untouched.Store(false)
	return t.ReadCloser.Read(p)
}

// The results are those of [call.send].
func (c *call) stream(s *queue.Slot) (done bool, err error) {
	again, cut, err := c.pass(s)
	if err != nil {
		if told := c.failed(s, err); told != nil || again {
			return false, told
		}
		return false, api.AsError(err)
	}
	s.Done(queue.Used{Served: true, Input: c.req.Input})
	c.f.Metrics.Timing(c.reply.timing)
	c.reply.status = c.reply.answered
	if cut {
		c.reply.code = api.CodeStreamCut
	}
	c.f.Metrics.Done(c.reply.answered, time.Since(c.req.begun))
	if cut {
		panic(http.ErrAbortHandler)
	}
	return true, nil
}

func passed(through *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) (cut bool) {
	defer func() {
		if v := recover(); v != nil {
			if err, is := v.(error); !is || !errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			cut = true
		}
	}()
	through.ServeHTTP(w, r)
	return false
}
