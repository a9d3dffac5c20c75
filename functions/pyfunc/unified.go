package pyfunc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

var errTimeout = errors.New("the call's time limit")

func (h *Handler) serveUnified(w http.ResponseWriter, r *http.Request, q *query) {
	body := h.withModel(q.body, q.values["model"])
	if bad := h.permit(r.Header, body); bad != nil {
		fail(w, asFailure(bad))
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out := &reply{w: w, stream: string(q.values["stream"]) == "true"}
	if h.cfg.Timeout > 0 {
		out.timer = time.AfterFunc(h.cfg.Timeout, func() { cancel(errTimeout) })
		defer out.timer.Stop()
	}
	inner := r.WithContext(ctx)
	inner.URL = &url.URL{Path: pathFor(q), RawQuery: r.URL.RawQuery}
	inner.RequestURI = inner.URL.RequestURI()
	inner.Header = r.Header.Clone()
	delete(inner.Header, "Accept-Encoding") // the answer is read here
	delete(inner.Header, "Content-Length")
	inner.Body, inner.ContentLength, inner.TransferEncoding = newInnerBody(body), int64(len(body)), nil
	err := h.call(out, inner)
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case errors.Is(context.Cause(ctx), errTimeout) && !out.sent:
		clear(w.Header())
		answer(w, http.StatusGatewayTimeout, "application/json", "Request processing time exceeded limit")
	default:
		h.endReply(out, err)
	}
}

// pathFor returns the path for a request: 1. a chat; 2. a completion; 3. a field of embeddings; 4. a field of a generation, or a list of
// objects, makes it a response; else an input is for embeddings, as in MLflow.
func pathFor(q *query) string {
	switch {
	case q.values["messages"] != nil: // 1.
		return "/v1/chat/completions"
	case q.values["prompt"] != nil: // 2.
		return "/v1/completions"
	case q.has(embedKeys): // 3.
	case q.has(generateKeys), isListOf(q.values["input"], '{'): // 4.
		return "/v1/responses"
	}
	return "/v1/embeddings"
}

func (h *Handler) withModel(body, given []byte) []byte {
	if h.cfg.Model == "" || !slices.Contains([]string{"", "null", `""`}, string(given)) {
		return body
	}
	model := quoted(string(h.cfg.Model))
	if given != nil {
		return jsonfield.Set(body, "model", model)
	}
	before, behind, _ := bytes.Cut(body, []byte("{"))
	return slices.Concat(before, []byte(`{"model":`), model, []byte(","), behind)
}

const cutShort = "the runtime cut its answer short"

const maxError = 64 << 10

// reply passes an answer of Next on. An error gets MLflow's shape, a stream that was asked for AgentServer's.
type reply struct {
	w      http.ResponseWriter
	stream bool
	timer  *time.Timer // ends the call unless a stream begins; nil: no limit

	status int     // 0: nothing was written
	sent   bool    // the client has seen it
	failed []byte  // the body of an error
	events *events // not nil: a stream of events
}

func (a *reply) Header() http.Header { return a.w.Header() }

func (a *reply) Unwrap() http.ResponseWriter { return a.w }

func (a *reply) WriteHeader(status int) {
	if status < 200 {
		a.w.WriteHeader(status)
		return
	}
	if a.status != 0 {
		return
	}
	a.status = status
	if status >= 400 {
		return
	}
	if a.stream && strings.HasPrefix(a.w.Header().Get("Content-Type"), "text/event-stream") {
		a.events = &events{}
		a.w.Header().Del("Content-Length")
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	a.sent = true
	a.w.WriteHeader(status)
}

func (a *reply) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	switch {
	case a.status >= 400:
		a.failed = append(a.failed, p[:min(len(p), maxError-len(a.failed))]...)
		return len(p), nil
	case a.events != nil:
		if out := a.events.next(p); len(out) > 0 {
			if _, err := a.w.Write(out); err != nil {
				return 0, err
			}
		}
		return len(p), nil
	}
	return a.w.Write(p)
}

func (a *reply) Flush() {
	if !a.sent {
		return
	}
	_ = http.NewResponseController(a.w).Flush()
}

// endReply ends an answer after Next has ended: 1. a stream; 2. an error; 3. anything else stays as Next wrote it.
func (h *Handler) endReply(a *reply, err error) {
	if err == nil {
		a.WriteHeader(http.StatusOK)
	}
	switch {
	case a.events != nil: // 1.
		why := ""
		if err != nil {
			why = cutShort
		}
		if out := a.events.finish(why); len(out) > 0 {
			_, _ = a.w.Write(out)
			a.Flush()
		}
	case a.status >= 400: // 2.
		h.translate(a)
	case errors.Is(err, http.ErrAbortHandler) && a.sent:
		panic(http.ErrAbortHandler)
	case errors.Is(err, http.ErrAbortHandler):
		fail(a.w, failure{Status: http.StatusBadGateway, Message: cutShort})
	case err != nil && !a.sent:
		fail(a.w, failure{Status: http.StatusBadGateway, Message: fmt.Sprintf("the request failed before it was answered: %v", err)})
	}
}

func (h *Handler) translate(a *reply) {
	head := a.w.Header()
	head.Del("Content-Encoding")
	head.Del("Transfer-Encoding")
	h.setRetryAfter(head, a.status)
	f := failure{Status: a.status, Message: string(bytes.ToValidUTF8(bytes.TrimSpace(a.failed), nil))}
	var body struct{ Error json.RawMessage }
	var object struct{ Message string }
	if json.Unmarshal(a.failed, &body) == nil && json.Unmarshal(body.Error, &object) == nil && object.Message != "" {
		f.Message = object.Message
	} else {
		raw, _ := api.Errorf(a.status, "", "%s", f.Message).MarshalJSON()
		_ = json.Unmarshal(raw, &body)
	}
	f.OpenAI = body.Error
	fail(a.w, f)
}
