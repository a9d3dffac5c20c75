package functions

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/adapters"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// pathUp reports whether the runtime is up, even where all other paths are its clients'.
const pathUp = "/rouse/v1/up"

const maxControlBody = 1 << 20

func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == pathUp:
		f.readiness(w)
	case f.plain() && path != "/metrics" && !strings.HasPrefix(path, "/rouse/"):
		f.clients.ServeHTTP(w, r)
	case proxy.AnswersProbe(w, r):
	case path == "/readyz":
		f.readiness(w)
	case path == "/metrics" && f.cfg.OpenMetrics && r.Method == http.MethodGet:
		f.metrics.Handler().ServeHTTP(w, r)
	case path == "/metrics" || strings.HasPrefix(path, "/rouse/"):
		if f.cfg.admits(w, r) {
			f.administer(w, r)
		}
	case path == adapters.Path || strings.HasPrefix(path, "/adapters/"):
		if r.Method == http.MethodGet && (path == adapters.Path || path == "/adapters/info") || f.cfg.admits(w, r) {
			f.adapters.ServeHTTP(w, r)
		}
	case pyfunc.Serves(path):
		f.pyfunc.ServeHTTP(w, r)
	default:
		f.client(w, r)
	}
}

// takeOver is how long a request waits to learn whether a dead worker's runtime still serves.
const takeOver = 2 * time.Second

func (f *function) client(w http.ResponseWriter, r *http.Request) {
	if path := r.URL.Path; path == "/v1/models" || strings.HasPrefix(path, "/v1/models/") {
		f.adapters.Models(w, r)
		return
	}
	select {
	case <-f.settled:
	default:
		timer := time.NewTimer(takeOver)
		defer timer.Stop()
		select {
		case <-f.settled:
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	f.clients.ServeHTTP(w, r)
}

func (f *function) readiness(w http.ResponseWriter) {
	if refused := f.supervisor.Gate().Refusal(); refused != nil {
		api.WriteError(w, refused)
		return
	}
	proxy.AnswerOK(w)
}

// authorize admits all who can open our Unix socket. Elsewhere it requires Config.Token or the content of Config.TokenFile.
func (c *Config) authorize(r *http.Request) error {
	if _, unix := c.Listen.Socket(); unix || c.Listen == "" { // or in this process
		return nil
	}
	got, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if c.Token != "" && found && same(got, c.Token) {
		return nil
	}
	if c.TokenFile == "" && c.Token == "" {
		return api.Errorf(http.StatusForbidden, "", "%s is for the control plane, and this instance was given no token to know it by: start it with --token-file, or let it listen on a Unix socket", r.URL.Path)
	}
	if c.TokenFile != "" {
		want, err := os.ReadFile(c.TokenFile)
		token := strings.TrimSpace(string(want))
		if err != nil || token == "" {
			c.Logger.Error("control plane can't authenticate: its token file can't be read or is empty", "file", c.TokenFile, "error", err)
			return api.Errorf(http.StatusServiceUnavailable, "", "this instance has no token to compare with: see its log")
		}
		if found && same(got, token) {
			return nil
		}
	}
	return api.Errorf(http.StatusUnauthorized, "", "%s is for the control plane: send its bearer token", r.URL.Path)
}

func (c *Config) admits(w http.ResponseWriter, r *http.Request) bool {
	err := c.authorize(r)
	if err != nil {
		api.WriteError(w, err)
	}
	return err == nil
}

// same compares digests, so that its time does not reveal the secrets' lengths.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// ControlPaths are the paths of an instance's control plane, with their methods. They must not be changed.
var ControlPaths = map[string]string{
	"/metrics": http.MethodGet, control.PathState: http.MethodGet, control.PathLogs: http.MethodGet,
	control.PathWake: http.MethodPost, control.PathSleep: http.MethodPost, control.PathStop: http.MethodPost,
	control.PathFence: http.MethodPost, control.PathAdapters: http.MethodPut,
}

func (f *function) administer(w http.ResponseWriter, r *http.Request) {
	switch want := ControlPaths[r.URL.Path]; want {
	case r.Method:
	case "":
		api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "there is nothing at %s", r.URL.Path))
		return
	default:
		proxy.RefuseMethod(w, r, want)
		return
	}
	switch r.URL.Path {
	case "/metrics":
		f.metrics.Handler().ServeHTTP(w, r)
	case control.PathState:
		api.WriteJSON(w, http.StatusOK, f.supervisor.Status())
	case control.PathLogs:
		f.logs(w, r)
	case control.PathWake:
		answerCall(w, r.WithContext(api.WithTrace(r.Context(), api.TraceFrom(r.Header))), f.wake)
	case control.PathSleep:
		answerCall(w, r, f.supervisor.Sleep)
	case control.PathFence:
		answerCall(w, r, f.supervisor.Fence)
	case control.PathAdapters:
		answerCall(w, r, f.declare)
	case control.PathStop:
		answerCall(w, r, f.supervisor.Stop)
	}
}

// wake uses the grant's trace if the call has none.
func (f *function) wake(ctx context.Context, g api.Grant) (api.InstanceStatus, error) {
	if api.TraceOf(ctx).Zero() {
		t, _ := api.ParseTrace(g.Trace)
		ctx = api.WithTrace(ctx, t)
	}
	return f.supervisor.Wake(ctx, g)
}

func (f *function) declare(ctx context.Context, r control.AdaptersRequest) (api.InstanceStatus, error) {
	err := f.adapters.Declare(ctx, r.Adapters)
	return f.supervisor.Status(), err
}

func answerCall[T any](w http.ResponseWriter, r *http.Request, call func(context.Context, T) (api.InstanceStatus, error)) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBody))
	if err != nil {
		api.WriteError(w, err)
		return
	}
	var in T
	if err := json.Unmarshal(raw, &in); err != nil {
		api.WriteError(w, api.BadRequest("", "%s %s: the body is not what is wanted: %v", r.Method, r.URL.Path, api.Explain(err)))
		return
	}
	status, err := call(r.Context(), in)
	api.Answer(w, status, err)
}

func (f *function) logs(w http.ResponseWriter, r *http.Request) {
	tail := -1
	if text := r.FormValue("tail"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			api.WriteError(w, api.BadRequest("tail", "tail is %q: want a number of lines, or -1 for all", text))
			return
		}
		tail = n
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	line := func(s string) error {
		_, err := io.WriteString(w, s+"\n")
		return err
	}
	if r.FormValue("follow") != "true" {
		for _, s := range f.log.Tail(tail) {
			if line(s) != nil {
				return
			}
		}
		return
	}
	flush := http.NewResponseController(w)
	_ = flush.Flush() // the caller sees that it follows before there is a line
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(f.ending, cancel)()
	err := f.log.Follow(ctx, tail, func(s string) error { return errors.Join(line(s), flush.Flush()) })
	if err != nil {
		f.cfg.Logger.Debug("a follower of the logs left", "error", err)
	}
}

// loadEvery is the time between two samples of the load, and so the least between two reports.
const loadEvery = time.Second

// loadWatch reports the load of a runtime that has requests.
//
//  1. A request enters an empty runtime: the watch begins.
//  2. Each second, if requests run or several came and went, it reads the runtime's metrics and reports large changes.
//  3. When none runs and at most one came and went, it reports once more, with new contents of the prefix cache, and ends.
type loadWatch struct {
	gate interface {
		Busy() <-chan struct{}
		Running() (running int, entered uint64)
	}
	meter *metrics.Meter
	// report must not block.
	report func(api.Load)
}

func (w *loadWatch) run(ctx context.Context) {
	var told api.Load
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-w.gate.Busy(): // 1.
		case <-ctx.Done():
			return
		}
		w.meter.Begin()
		_, before := w.gate.Running()
		before = max(before, 1) - 1 // the request that began the watch counts
		tick.Reset(loadEvery)
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			running, entered := w.gate.Running()
			if running == 0 && entered-before < 2 { // 3.
				break
			}
			before = entered
			if load := w.meter.Poll(); metrics.Differs(load, told) { // 2.
				told = load
				w.report(load)
			}
		}
		idle, rest := api.Load{Cached: told.Cached, CacheKnown: told.CacheKnown}, w.meter.Rest()
		if told != idle || metrics.Differs(rest, told) {
			told = rest
			w.report(told)
		}
	}
}

// lookEvery is the time between two checks of the adapters of a server that others started.
const lookEvery = 10 * time.Second

func (f *function) watchBrought(ctx context.Context) {
	if f.cfg.Function.Runtime.Endpoint == "" || !f.runtime.Traits().Brings {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if f.supervisor.Gate().Refusal() == nil {
			f.adapters.Poll(ctx)
		}
	}
}

func (f *function) watchLoad(ctx context.Context) {
	if f.emit == nil {
		return
	}
	w := loadWatch{gate: f.supervisor.Gate(), meter: f.metrics.Meter(), report: f.supervisor.Reports().SetLoad}
	w.run(ctx)
}
