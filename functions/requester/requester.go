package requester

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"

	"github.com/rouse-dev/rouse/api"
)

// Paths of the interface.
const (
	PathAccelerators = "/v1/dual-pods/accelerators"
	PathMemoryUsage  = "/v1/dual-pods/accelerator-memory-usage"
	PathBecomeReady  = "/v1/become-ready"
	PathUnready      = "/v1/become-unready"
	PathReady        = "/ready"
	PathSetLog       = "/v1/set-log"
	PathProxy        = "/v1/proxy/config"
	PathRelease      = "/v1/release"
)

// maxLog bounds one piece of the provider's log, maxBody other bodies.
const maxLog, maxBody = 4 << 20, 64 << 10

// Config configures a [Requester].
type Config struct {
	// Devices are the pod's devices.
	Devices []api.DeviceID
	// Authorize returns an *[api.Error] unless a request comes from the control plane.
	Authorize func(*http.Request) error
	// Usage measures the memory in use on all visible devices; nil: [Usage].
	Usage func(context.Context) (map[api.DeviceID]api.Bytes, error)
	// Output receives the provider's log; nil: it is dropped.
	Output io.Writer
	// Transport reaches the provider; nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Changed is called when it becomes ready or unready; it must not block. Nil: no call.
	Changed func(ready bool)
	Logger  *slog.Logger
}

// Proxy is the address for requests that are not the requester's own. Zero: none.
type Proxy struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// Requester holds a claim. See [New].
type Requester struct {
	cfg      Config
	released chan struct{} // closed by release
	release  func()

	mu    sync.Mutex // guards the fields below
	ready bool
	proxy Proxy
	to    *httputil.ReverseProxy // nil: no provider

	logging sync.Mutex // guards logged; held during writes to Output
	logged  int64      // bytes of the provider's log
}

// New returns a requester that is not ready.
func New(cfg Config) *Requester {
	if cfg.Usage == nil {
		cfg.Usage = Usage
	}
	if cfg.Output == nil {
		cfg.Output = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Requester{cfg: cfg, released: make(chan struct{})}
	r.release = sync.OnceFunc(func() { close(r.released) })
	return r
}

// Ready reports whether a provider serves under this claim.
func (r *Requester) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// Run blocks until the claim may go. That is at the end of ctx, unless a provider uses the claim: then Run waits for the release. It
// returns at the latest when kill is closed.
func (r *Requester) Run(ctx context.Context, kill <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-kill:
		return
	}
	if r.Ready() {
		r.cfg.Logger.Info("pod is being deleted: waiting until the provider sleeps")
		select {
		case <-r.released:
		case <-kill:
			r.cfg.Logger.Warn("releasing the claim before the provider was reported asleep")
		}
	}
}

// ServeHTTP answers the interface's paths, and passes others on.
func (r *Requester) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	want, own := map[string]string{
		PathAccelerators: http.MethodGet, PathMemoryUsage: http.MethodGet, PathBecomeReady: http.MethodPost, PathUnready: http.MethodPost,
		PathSetLog: http.MethodPost, PathRelease: http.MethodPost,
	}[req.URL.Path]
	switch path := req.URL.Path; {
	case path == PathReady || path == "/readyz":
		r.answerReady(w)
		return
	case path == "/healthz":
		api.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	case !own && path != PathProxy:
		r.pass(w, req)
		return
	}
	if err := r.cfg.Authorize(req); err != nil {
		api.WriteError(w, err)
		return
	}
	if req.URL.Path == PathProxy {
		r.configure(w, req)
		return
	}
	if req.Method != want {
		w.Header().Set("Allow", want)
		api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want %s", req.Method, req.URL.Path, want))
		return
	}
	if err := r.administer(w, req); err != nil {
		api.WriteError(w, err)
	}
}

func (r *Requester) administer(w http.ResponseWriter, req *http.Request) error {
	switch req.URL.Path {
	case PathAccelerators:
		ids := r.cfg.Devices
		if ids == nil {
			ids = []api.DeviceID{}
		}
		api.WriteJSON(w, http.StatusOK, ids)
	case PathMemoryUsage:
		used, err := r.cfg.Usage(req.Context())
		if err != nil {
			return api.Errorf(http.StatusServiceUnavailable, "", "the memory in use can't be measured: %v", err)
		}
		own := make(map[api.DeviceID]api.Bytes, len(r.cfg.Devices))
		for _, id := range r.cfg.Devices {
			own[id] = used[id]
		}
		api.WriteJSON(w, http.StatusOK, own)
	case PathBecomeReady, PathUnready, PathRelease:
		if r.become(req.URL.Path == PathBecomeReady); req.URL.Path == PathRelease {
			r.release()
		}
		w.WriteHeader(http.StatusOK)
	case PathSetLog:
		return r.log(w, req)
	}
	return nil
}

func (r *Requester) become(ready bool) {
	r.mu.Lock()
	news := r.ready != ready
	r.ready = ready
	r.mu.Unlock()
	if news && r.cfg.Changed != nil {
		r.cfg.Changed(ready)
	}
}

func (r *Requester) answerReady(w http.ResponseWriter) {
	if !r.Ready() {
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "no provider serves by this claim now"))
		return
	}
	api.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// log writes the new part of the provider's log. Pieces may overlap and repeat.
func (r *Requester) log(w http.ResponseWriter, req *http.Request) error {
	start, err := strconv.ParseInt(req.URL.Query().Get("startPos"), 10, 64)
	if err != nil || start < 0 {
		return api.BadRequest("startPos", "startPos is %q: want the position of the first byte, at least 0", req.URL.Query().Get("startPos"))
	}
	piece, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxLog))
	if err != nil {
		return api.BadRequest("", "read the piece of the log, of %d MiB at most: %v", maxLog>>20, err)
	}
	r.logging.Lock()
	defer r.logging.Unlock()
	if start > r.logged {
		return api.BadRequest("startPos", "startPos is %d and the log has %d bytes here: send what is missing first", start, r.logged)
	}
	if known := r.logged - start; known < int64(len(piece)) {
		n, err := r.cfg.Output.Write(piece[known:])
		r.logged += int64(n)
		if err != nil {
			return fmt.Errorf("write the provider's log: %w", err)
		}
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// configure returns or sets the proxy.
func (r *Requester) configure(w http.ResponseWriter, req *http.Request) {
	switch req.Method {
	case http.MethodGet:
		r.mu.Lock()
		p := r.proxy
		r.mu.Unlock()
		api.WriteJSON(w, http.StatusOK, p)
	case http.MethodPut:
		var p Proxy
		if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody)).Decode(&p); err != nil {
			api.WriteError(w, api.BadRequest("", "want {\"address\": \"IP\", \"port\": N}: %v", api.Explain(err)))
			return
		}
		if err := r.aim(p); err != nil {
			api.WriteError(w, api.BadRequest("", "%v", err))
			return
		}
		w.WriteHeader(http.StatusOK)
	default:
		w.Header().Set("Allow", "GET, PUT")
		api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want GET or PUT", req.Method, req.URL.Path))
	}
}

func (r *Requester) aim(p Proxy) error {
	if p != (Proxy{}) && (net.ParseIP(p.Address) == nil || p.Port < 1 || p.Port > 65535) {
		return errors.New("want an IP address and a port from 1 to 65535, or neither")
	}
	var to *httputil.ReverseProxy
	if p != (Proxy{}) {
		at := &url.URL{Scheme: "http", Host: net.JoinHostPort(p.Address, strconv.Itoa(p.Port))}
		to = &httputil.ReverseProxy{
			Transport: r.cfg.Transport, FlushInterval: -1,
			Rewrite: func(pr *httputil.ProxyRequest) {
				pr.SetURL(at)
				pr.Out.Host = pr.In.Host
				pr.SetXForwarded()
			},
			ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
				api.WriteErrorTo(w, req, api.Errorf(http.StatusBadGateway, api.CodeUnhealthy, "the provider does not answer: %v", err))
			},
			ErrorLog: slog.NewLogLogger(r.cfg.Logger.Handler(), slog.LevelDebug),
		}
	}
	r.mu.Lock()
	r.proxy, r.to = p, to
	r.mu.Unlock()
	return nil
}

func (r *Requester) pass(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	if to == nil {
		api.WriteErrorTo(w, req, api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "this pod claims GPUs and runs no model, and no provider serves by its claim now"))
		return
	}
	to.ServeHTTP(w, req)
}
