package pyfunc

import (
	"context"
	"fmt"
	"io"
	"net/http"
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
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	return &Handler{cfg: cfg}, nil
}

// Serves says whether a path is the handler's. Beside its own paths these are
// /serving-endpoints/NAME/invocations, by which Databricks' clients call.
func Serves(path string) bool {
	switch path {
	case "/invocations", "/ping", "/health", "/version":
		return true
	}
	return isEndpoint(path)
}

func isEndpoint(path string) bool {
	name, found := strings.CutPrefix(path, "/serving-endpoints/")
	if !found {
		return false
	}
	name, found = strings.CutSuffix(name, "/invocations")
	return found && name != "" && !strings.Contains(name, "/")
}

// ServeHTTP answers one call. It panics with [http.ErrAbortHandler] where the
// connection must not end well.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/ping" || path == "/health":
		if allow(w, r, http.MethodGet, http.MethodHead) {
			h.ping(w)
		}
	case path == "/version":
		if allow(w, r, http.MethodGet, http.MethodHead) {
			answer(w, http.StatusOK, "application/json", h.cfg.Version)
		}
	case path == "/invocations" || isEndpoint(path):
		if allow(w, r, http.MethodPost) {
			h.invoke(w, r)
		}
	default:
		fail(w, failure{Status: http.StatusNotFound, Message: fmt.Sprintf("there is nothing at %s: POST to /invocations", path)})
	}
}

// allow answers 405 where the method is none of want.
func allow(w http.ResponseWriter, r *http.Request, want ...string) bool {
	if slices.Contains(want, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(want, ", "))
	fail(w, failure{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s %s: want %s", r.Method, r.URL.Path, want[0])})
	return false
}

// ping: 1. requests are taken; 2. there is no model, and none on its way; 3. it
// is on its way, or asleep: which of them, and when to come back.
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
		fail(w, unreadable(err))
		return
	}
	defer body.Release()
	q, err := parse(body.Bytes(), csv)
	var strings [][]byte
	switch {
	case err == nil && q.unified():
		h.unified(w, r, q)
		return
	case err == nil:
		strings, err = q.strings()
	}
	if err == nil && len(strings) > h.cfg.MaxInputs {
		err = failure{Message: fmt.Sprintf("the call has %d inputs and may have %d: send them in several calls", len(strings), h.cfg.MaxInputs)}
	}
	var tasks []task
	if err == nil {
		tasks, err = h.tasks(strings, &q)
	}
	if err != nil {
		fail(w, asFailure(err))
		return
	}
	h.predict(w, r, tasks)
}

// unreadable is the failure of a body that can't be read.
func unreadable(err error) failure {
	e := api.AsError(err)
	return failure{Status: e.Status, Message: e.Message}
}

// answer writes a whole answer.
func answer(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may have left
}

// bounded is a context that ends with the call's time limit.
func (h *Handler) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.cfg.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, h.cfg.Timeout)
}
