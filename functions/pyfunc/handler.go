package pyfunc

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/proxy"
	bodies "github.com/rouse-dev/rouse/internal/inbound"
)

// Handler answers the paths of a scoring server. It is safe for many goroutines.
type Handler struct {
	cfg     Config
	history history

	diagnosing sync.Mutex // held by the one call that runs commands
}

// New starts nothing.
func New(cfg Config) *Handler {
	cfg.Version, cfg.MaxAnswer = cmp.Or(cfg.Version, "unknown"), cmp.Or(cfg.MaxAnswer, 256*api.MiB)
	return &Handler{cfg: cfg}
}

// Serves reports whether the handler serves a path: its own, and /serving-endpoints/NAME/invocations, which Databricks' clients call,
// each also with a slash at its end.
func Serves(path string) bool {
	path = strings.TrimSuffix(path, "/")
	return slices.Contains([]string{"/invocations", "/ping", "/health", "/version"}, path) || isEndpoint(path)
}

func isEndpoint(path string) bool {
	name, prefixed := strings.CutPrefix(path, "/serving-endpoints/")
	name, suffixed := strings.CutSuffix(name, "/invocations")
	return prefixed && suffixed && name != "" && !strings.Contains(name, "/")
}

// ServeHTTP answers one call. It panics with [http.ErrAbortHandler] if the connection must be aborted.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want := []string{http.MethodGet, http.MethodHead}
	switch path := r.URL.Path; {
	case !Serves(path):
		fail(w, failure{Status: http.StatusNotFound, Message: fmt.Sprintf("there is nothing at %s: POST to /invocations", path)})
		return
	case strings.HasSuffix(path, "/"): // MLflow's server redirects it
		to := url.URL{Path: strings.TrimSuffix(path, "/"), RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", to.String())
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	case strings.HasSuffix(path, "/invocations"):
		want = []string{http.MethodPost}
	}
	if !slices.Contains(want, r.Method) {
		w.Header().Set("Allow", strings.Join(want, ", "))
		fail(w, failure{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s %s: want %s", r.Method, r.URL.Path, want[0])})
		return
	}
	switch r.URL.Path {
	case "/ping", "/health":
		h.ping(w)
	case "/version":
		answer(w, http.StatusOK, "application/json", h.cfg.Version)
	default:
		h.invoke(w, r)
	}
}

// ping reports: 1. requests are accepted; 2. there is no model, and none is starting; 3. it starts or sleeps.
func (h *Handler) ping(w http.ResponseWriter) {
	switch refused := h.cfg.Refusal(); {
	case refused == nil: // 1.
		answer(w, http.StatusOK, "application/json", "\n")
	case refused.Code == api.CodeShutdown: // 2.
		answer(w, http.StatusNotFound, "application/json", "\n")
	default: // 3.
		api.WriteError(w, refused)
	}
}

func (h *Handler) invoke(w http.ResponseWriter, r *http.Request) {
	csv, bad := contentType(r.Header.Get("Content-Type"))
	if bad != "" {
		answer(w, http.StatusUnsupportedMediaType, "text/plain; charset=utf-8", bad)
		return
	}
	body, err := h.cfg.Door.Read(w, r, proxy.Client(r))
	if err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		fail(w, asFailure(err))
		return
	}
	defer body.Release()
	q, err := parse(body.Bytes(), csv)
	if err == nil && q.has(ownKeys) {
		h.serveUnified(w, r, &q)
		return
	}
	var tasks []task
	if err == nil {
		tasks, err = h.tasks(&q)
	}
	if err != nil {
		fail(w, asFailure(err))
		return
	}
	h.predict(w, r, tasks)
}

func answer(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

const maxInputs = 1024

// Config of a [Handler].
type Config struct {
	// Next serves the client paths. It is called in process, from goroutines of the call.
	Next http.Handler
	// Status must not block.
	Status func() api.InstanceStatus
	// Refusal returns why a request would be refused now, or nil. It must not block.
	Refusal func() *api.Error
	Model   api.ModelName
	Version string
	// Engine is the engine_name of a health check, see [EngineName].
	Engine      string
	Credentials bool
	Door        *bodies.Door
	// MaxAnswer bounds one unpacked answer in an envelope; 0: 256 MiB. A longer one is a 502 in its envelope.
	MaxAnswer api.Bytes
	// Timeout bounds a call, or a stream up to its first event; then the answer is 504. 0: no bound. MLflow's own 60 s is too short for a
	// long generation.
	Timeout time.Duration
	// Parallel is the number of strings of one call in Next at once.
	Parallel    int
	Diagnostics bool
	// Diagnostics show the values of a few harmless names of Env.
	Env    []string
	Logger *slog.Logger
}

// TimeoutFrom reads MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT, in seconds; 0: no limit.
func TimeoutFrom(env []string) (time.Duration, error) {
	const name = "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"
	value := process.Variable(env, name)
	if value == "" {
		return 0, nil
	}
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds < 0 || seconds > 1e6 {
		return 0, fmt.Errorf("%s is %q: want a whole number of seconds, 0 for no limit", name, value)
	}
	return time.Duration(seconds) * time.Second, nil
}

// EngineName returns the engine_name of a kind of runtime.
func EngineName(kind string) string {
	if kind == api.RuntimeEngine {
		return "rouse-engine"
	}
	return kind + "-engine"
}

const keptStatuses = 50

const timeLayout = "2006-01-02 15:04:05.000000"

type entry struct {
	At     string `json:"datetime_utc"`
	Status string `json:"status"`
}

type history struct {
	mu        sync.Mutex // guards the fields below
	entries   []entry    // the last keptStatuses, the newest last
	last      api.InstanceStatus
	lastAwake time.Time
}

// Observe adds a report to the health checks. It does not block. It ignores reports that are out of order or change nothing.
func (h *Handler) Observe(s api.InstanceStatus) {
	now := time.Now().UTC()
	past := &h.history
	past.mu.Lock()
	defer past.mu.Unlock()
	last := past.last
	if last.State != "" && !s.Supersedes(last) {
		return
	}
	if last.State == api.Awake || s.State == api.Awake {
		past.lastAwake = now
	}
	past.last = s
	if s.State == last.State && s.Restarts == last.Restarts && s.Level == last.Level {
		return
	}
	if text := statusText(last, s); text != "" {
		past.entries = append(past.entries, entry{now.Format(timeLayout), text})
		past.entries = slices.Delete(past.entries, 0, max(0, len(past.entries)-keptStatuses))
	}
}

func statusText(last, s api.InstanceStatus) string {
	first, again := "", ""
	switch s.State {
	case api.Starting:
		first, again = "Process is starting.", "Process is not running. Respawning."
	case api.Awake:
		first, again = "Spawn Server Proc Finished.", "Health check passed after respawn."
	case api.Unhealthy:
		if s.PID == 0 {
			return "Process is not running."
		}
		return fmt.Sprintf("Health check failed after respawn. Attempt: %d", s.Restarts)
	case api.Asleep:
		return fmt.Sprintf("Process is asleep at level %d.", s.Level)
	case api.Draining:
		return "Process is draining."
	case api.Gone:
		return "Process does not exist."
	}
	if s.Restarts > 0 || last.State == api.Unhealthy {
		return again
	}
	return first
}

func (h *Handler) health(now time.Time) string {
	answer := struct {
		Status    string  `json:"status"`
		PID       int     `json:"worker_pid"`
		Engine    string  `json:"engine_name"`
		Heartbeat string  `json:"health_check_last_heartbeat"`
		Statuses  []entry `json:"health_check_thread_last_50_status"`
		Note      string  `json:"note"`
	}{PID: os.Getpid(), Engine: h.cfg.Engine, Note: "heartbeat is updated at a frequency but can pause when server is being respawned"}
	s := h.cfg.Status()
	h.history.mu.Lock()
	beat := h.history.lastAwake
	answer.Statuses = append([]entry{}, h.history.entries...)
	h.history.mu.Unlock()
	if s.State != "" {
		answer.Status = "UNAVAILABLE"
	}
	if s.Ready() {
		answer.Status, beat = "AVAILABLE", now
	}
	if !beat.IsZero() {
		answer.Heartbeat = beat.UTC().Format(timeLayout)
	}
	raw, _ := json.Marshal(answer)
	return string(raw)
}
