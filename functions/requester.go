package functions

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
	"github.com/rouse-dev/rouse/functions/proxy"
)

// Paths of llm-d's dual-pods requester. All but /ready require the instance's token. Other paths go to the provider.
const (
	pathAccelerators = "/v1/dual-pods/accelerators"
	pathMemoryUsage  = "/v1/dual-pods/accelerator-memory-usage" // GET: bytes in use by UUID, by any process
	pathBecomeReady  = "/v1/become-ready"                       // POST, as the next: sets the answer of /ready
	pathUnready      = "/v1/become-unready"
	pathReady        = "/ready"
	pathSetLog       = "/v1/set-log" // POST ?startPos=N: the provider's log from byte N on
	pathProxy        = "/v1/proxy/config"
	pathRelease      = "/v1/release" // POST: the claim may go (not in llm-d's)
)

// maxPiece bounds one piece of the provider's log, maxAddress other bodies.
const maxPiece, maxAddress = 4 << 20, 64 << 10

type requesterConfig struct {
	Devices []api.DeviceID
	// Authorize returns an *[api.Error] unless the control plane asks.
	Authorize func(*http.Request) error
	// Usage measures the memory in use on all visible devices; nil: [gpuUsage].
	Usage     func(context.Context) (map[api.DeviceID]api.Bytes, error)
	Output    io.Writer
	Transport http.RoundTripper
	// Changed must not block.
	Changed func(ready bool)
	Logger  *slog.Logger
}

// providerAddress may be zero: nowhere.
type providerAddress struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// requester runs in a pod that claims GPUs for another pod. It answers readiness probes on behalf of the pod that runs the model, and
// holds the claim until it is released. All methods are safe for many goroutines; Run is called once.
//
//  1. The pod has joined and was told that it is a requester: nothing is started.
//  2. It is bound: it gets the provider's address and becomes ready.
//  3. The provider sleeps: the claim becomes unready, is released, and its pod deleted.
//  4. If the pod is deleted first, Run waits for the release, within the pod's grace period.
type requester struct {
	cfg      requesterConfig
	released chan struct{}
	release  func()

	mu    sync.Mutex // guards the fields below
	ready bool
	proxy providerAddress
	to    *httputil.ReverseProxy // nil: no provider

	logging sync.Mutex // guards logged; held during writes to Output
	logged  int64      // bytes of the provider's log
}

func newRequester(cfg requesterConfig) *requester {
	if cfg.Usage == nil {
		cfg.Usage = gpuUsage
	}
	if cfg.Output == nil {
		cfg.Output = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &requester{cfg: cfg, released: make(chan struct{})}
	r.release = sync.OnceFunc(func() { close(r.released) })
	return r
}

func (r *requester) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// Run blocks until the end of ctx and then, while a provider uses the claim, until the release. It returns at once when kill is closed.
func (r *requester) Run(ctx context.Context, kill <-chan struct{}) {
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

func (r *requester) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	want, own := map[string]string{
		pathAccelerators: http.MethodGet, pathMemoryUsage: http.MethodGet, pathBecomeReady: http.MethodPost, pathUnready: http.MethodPost,
		pathSetLog: http.MethodPost, pathRelease: http.MethodPost,
	}[req.URL.Path]
	switch path := req.URL.Path; {
	case path == pathReady || path == "/readyz":
		r.answerReady(w)
		return
	case proxy.AnswersProbe(w, req):
		return
	case !own && path != pathProxy:
		r.pass(w, req)
		return
	}
	if err := r.cfg.Authorize(req); err != nil {
		api.WriteError(w, err)
		return
	}
	if req.URL.Path == pathProxy {
		r.configure(w, req)
		return
	}
	if req.Method != want {
		proxy.RefuseMethod(w, req, want)
		return
	}
	if err := r.administer(w, req); err != nil {
		api.WriteError(w, err)
	}
}

func (r *requester) administer(w http.ResponseWriter, req *http.Request) error {
	switch req.URL.Path {
	case pathAccelerators:
		ids := r.cfg.Devices
		if ids == nil {
			ids = []api.DeviceID{}
		}
		api.WriteJSON(w, http.StatusOK, ids)
	case pathMemoryUsage:
		used, err := r.cfg.Usage(req.Context())
		if err != nil {
			return api.Errorf(http.StatusServiceUnavailable, "", "the memory in use can't be measured: %v", err)
		}
		own := make(map[api.DeviceID]api.Bytes, len(r.cfg.Devices))
		for _, id := range r.cfg.Devices {
			own[id] = used[id]
		}
		api.WriteJSON(w, http.StatusOK, own)
	case pathBecomeReady, pathUnready, pathRelease:
		if r.become(req.URL.Path == pathBecomeReady); req.URL.Path == pathRelease {
			r.release()
		}
		w.WriteHeader(http.StatusOK)
	case pathSetLog:
		return r.log(w, req)
	}
	return nil
}

func (r *requester) become(ready bool) {
	r.mu.Lock()
	news := r.ready != ready
	r.ready = ready
	r.mu.Unlock()
	if news && r.cfg.Changed != nil {
		r.cfg.Changed(ready)
	}
}

func (r *requester) answerReady(w http.ResponseWriter) {
	if !r.Ready() {
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "no provider serves by this claim now"))
	} else {
		proxy.AnswerOK(w)
	}
}

// Pieces of the log may overlap and repeat.
func (r *requester) log(w http.ResponseWriter, req *http.Request) error {
	start, err := strconv.ParseInt(req.URL.Query().Get("startPos"), 10, 64)
	if err != nil || start < 0 {
		return api.BadRequest("startPos", "startPos is %q: want the position of the first byte, at least 0", req.URL.Query().Get("startPos"))
	}
	piece, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPiece))
	if err != nil {
		return api.BadRequest("", "read the piece of the log, of %d MiB at most: %v", maxPiece>>20, err)
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

func (r *requester) configure(w http.ResponseWriter, req *http.Request) {
	switch req.Method {
	case http.MethodGet:
		r.mu.Lock()
		p := r.proxy
		r.mu.Unlock()
		api.WriteJSON(w, http.StatusOK, p)
	case http.MethodPut:
		var p providerAddress
		if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxAddress)).Decode(&p); err != nil {
			api.WriteError(w, api.BadRequest("", "want {\"address\": \"IP\", \"port\": N}: %v", api.Explain(err)))
			return
		}
		if err := r.aim(p); err != nil {
			api.WriteError(w, api.BadRequest("", "%v", err))
			return
		}
		w.WriteHeader(http.StatusOK)
	default:
		proxy.RefuseMethod(w, req, "GET, PUT")
	}
}

func (r *requester) aim(p providerAddress) error {
	if p != (providerAddress{}) && (net.ParseIP(p.Address) == nil || p.Port < 1 || p.Port > 65535) {
		return errors.New("want an IP address and a port from 1 to 65535, or neither")
	}
	var to *httputil.ReverseProxy
	if p != (providerAddress{}) {
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

func (r *requester) pass(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	if to == nil {
		api.WriteErrorTo(w, req, api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "this pod claims GPUs and runs no model, and no provider serves by its claim now"))
		return
	}
	to.ServeHTTP(w, req)
}
