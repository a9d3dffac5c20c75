package leader

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/relay"
)

const (
	idlePerWorker  = 64
	idleConnection = 3 * time.Second
	// The pause before the next attempt to reach a leader grows with the time waited.
	firstPause, longestPause = 2 * time.Millisecond, 50 * time.Millisecond
	// deaths is how many leaders may die, or seem to, while they have one request.
	deaths = 3
)

type door struct {
	cfg       Config
	bodies    *inbound.Door
	local     atomic.Pointer[http.Handler] // the handler while this worker leads
	last      atomic.Bool                  // the worker ends: requests do not wait for a leader
	transport *localhttp.Transport
	proxy     *httputil.ReverseProxy
}

func newDoor(cfg Config) *door {
	d := &door{cfg: cfg, bodies: inbound.New(inbound.Config{MaxBody: int64(cfg.MaxBody)}), transport: localhttp.New(idlePerWorker, idleConnection)}
	d.proxy = &httputil.ReverseProxy{
		Rewrite:        d.rewrite,
		Transport:      d,
		FlushInterval:  -1,
		ModifyResponse: endHonestly,
		ErrorHandler:   d.fail,
		ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return d
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := d.local.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	read, err := d.bodies.Read(w, r, proxy.Client(r))
	if err != nil {
		api.WriteErrorTo(w, r, err)
		return
	}
	defer read.Release()
	out := r.WithContext(r.Context())
	out.Body, out.ContentLength, out.TransferEncoding = read.Reader(), int64(read.Len()), nil
	if read.Len() > 0 {
		out.GetBody = func() (io.ReadCloser, error) { return read.Reader(), nil }
	}
	d.proxy.ServeHTTP(w, out)
}

func (d *door) rewrite(r *httputil.ProxyRequest) {
	target := *r.In.URL
	to := socketIn(d.cfg.Dir).URL("")
	target.Scheme, target.Host, _ = strings.Cut(to, "://")
	r.Out.URL, r.Out.Host = &target, r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Te", "Trailer"} {
		if values := r.In.Header[name]; values != nil {
			r.Out.Header[name] = values
		}
	}
}

var errNoLeader = api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy,
	"no worker of this instance leads: the last one has died and another is taking over").WithRetryAfter(time.Second)

// RoundTrip sends a request to the leader, and to the next one if that dies before it answers. A refused connection does not count as a
// death; a broken one may.
func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	began := time.Now()
	for met := 0; ; {
		if r.GetBody != nil {
			r.Body, _ = r.GetBody()
		}
		if ua := r.Header["User-Agent"]; len(ua) == 1 && ua[0] == "" {
			delete(r.Header, "User-Agent") // ReverseProxy's way to send none
		}
		resp, err := d.transport.RoundTrip(r)
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		if !relay.Unreachable(err) {
			if met++; met == deaths {
				return nil, fmt.Errorf("%w: %w", api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "%d workers failed before they answered this request", met), err)
			}
		}
		waited := time.Since(began)
		if waited > d.cfg.Wait || d.last.Load() {
			return nil, errNoLeader
		}
		if err := bell.Sleep(ctx, min(max(waited/8, firstPause), longestPause)); err != nil {
			return nil, err
		}
	}
}

func (d *door) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	var refused *api.Error
	if !errors.As(err, &refused) {
		refused = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the request could not be passed to the worker that leads")
	}
	if refused.Status == http.StatusServiceUnavailable {
		w.Header().Set(control.HeaderRefused, refused.Code)
	}
	d.cfg.Logger.Warn("a request was not answered", "path", r.URL.Path, "error", fmt.Errorf("pass on: %w", err))
	api.WriteErrorTo(w, r, refused)
}
