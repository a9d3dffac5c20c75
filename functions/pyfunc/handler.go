package pyfunc

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// Handler answers the paths of a scoring server, see the package comment. It is
// safe for many goroutines.
type Handler struct {
	cfg     Config
	history history

	diagnosing sync.Mutex // held by the one call that runs commands
}

// New makes a handler; it starts nothing.
func New(cfg Config) (*Handler, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	return &Handler{cfg: cfg}, nil
}

// Serves reports whether the handler serves a path. Besides its own paths these are
// /serving-endpoints/NAME/invocations, which Databricks' clients call, and each of them with a slash at its end.
func Serves(path string) bool {
	path = strings.TrimSuffix(path, "/")
	return slices.Contains([]string{"/invocations", "/ping", "/health", "/version"}, path) || isEndpoint(path)
}

func isEndpoint(path string) bool {
	name, prefixed := strings.CutPrefix(path, "/serving-endpoints/")
	name, suffixed := strings.CutSuffix(name, "/invocations")
	return prefixed && suffixed && name != "" && !strings.Contains(name, "/")
}

// ServeHTTP answers one call. It panics with [http.ErrAbortHandler] if the
// connection must be aborted.
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

// ping reports one of three states: 1. requests are accepted; 2. there is no model, and none is
// starting; 3. the model is starting or asleep, with the time to retry.
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

// invoke answers a call of /invocations.
func (h *Handler) invoke(w http.ResponseWriter, r *http.Request) {
	csv, bad := contentType(r.Header.Get("Content-Type"))
	if bad != "" {
		answer(w, http.StatusUnsupportedMediaType, "text/plain; charset=utf-8", bad)
		return
	}
	body, err := h.cfg.Door.Read(w, r, proxy.Client(r))
	if err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client has left
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

// answer writes a complete answer.
func answer(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may have left
}
