package pyfunc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

type task struct {
	request *Request // nil: the prediction is done
	prompt  bool     // request is for a completion of it

	prediction []byte // a JSON string, quotes included
	refused    string // the code with which the gate refused it; empty: the runtime may have seen it
	used       relay.Usage
	failed     *reply // the error of a prompt
}

func quoted[T []byte | string](text T) []byte {
	q, _ := jsontext.AppendQuote(nil, text)
	return q
}

// tasks decodes the strings of a call in place.
func (h *Handler) tasks(q *query) ([]task, error) {
	inputs, err := q.strings()
	if err != nil {
		return nil, err
	}
	if len(inputs) > maxInputs {
		return nil, failure{Message: fmt.Sprintf("the call has %d inputs and may have %d: send them in several calls", len(inputs), maxInputs)}
	}
	tasks := make([]task, len(inputs))
	var health []byte
	diagnoses := map[string][]byte{}
	for i, s := range inputs {
		t := &tasks[i]
		switch trimmed := bytes.TrimSpace(s); {
		case bytes.HasPrefix(s, []byte("HEALTH_CHECK")):
			if health == nil {
				health = quoted(h.health(time.Now()))
			}
			t.prediction = health
		case bytes.HasPrefix(s, []byte("COMPUTE_DIAGNOSTICS")):
			key := allDiagnostics
			if parts := strings.Split(string(s), ":"); len(parts) > 1 {
				key = parts[1]
			}
			if diagnoses[key] == nil {
				diagnoses[key] = quoted(h.diagnose(key))
			}
			t.prediction = diagnoses[key]
		case len(trimmed) > 0 && trimmed[0] != '{' && !jsontext.Value(s).IsValid():
			t.request, t.prompt = h.completion(s, q), true
		default:
			r, err := ParseRequest(s)
			if err != nil {
				return nil, unexpected(fmt.Sprintf("input %d is no request: %v", i, err))
			}
			t.request = &r
		}
	}
	return tasks, nil
}

func (h *Handler) completion(prompt []byte, q *query) *Request {
	body := []byte("{}")
	if params := q.values["params"]; begins(params, '{') {
		body = params
	}
	o := jsonfield.Open(body)
	o.Set("prompt", quoted(prompt))
	o.Set("stream", []byte("false"))
	if model := q.values["model"]; model != nil {
		o.Set("model", model)
	}
	model, _ := o.Find("model")
	return &Request{Method: http.MethodPost, Path: "completions", Compat: true, Header: []Field{{Name: "Content-Type", Value: "application/json"}}, Body: h.withModel(o.Bytes(), model)}
}

func (h *Handler) predict(w http.ResponseWriter, r *http.Request, tasks []task) {
	ctx, cancel := context.WithCancel(r.Context())
	if h.cfg.Timeout > 0 {
		ctx, cancel = context.WithTimeout(r.Context(), h.cfg.Timeout)
	}
	defer cancel()
	var pending []*task
	for i := range tasks {
		if tasks[i].request != nil {
			pending = append(pending, &tasks[i])
		}
	}
	requests := len(pending)
	for last := len(pending) + 1; len(pending) > 0 && len(pending) < last; { // otherwise other calls have the slots
		last = len(pending)
		h.run(ctx, r, pending)
		pending = slices.DeleteFunc(pending, func(t *task) bool { return t.refused != api.CodeBusy })
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if r.Header[control.HeaderUsage] != nil {
		w.Header().Set(control.HeaderUsage, usedBy(tasks))
	}
	for i := range tasks {
		t := &tasks[i]
		if t.failed == nil {
			continue
		}
		if after := t.failed.w.Header().Get("Retry-After"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		if requests == 1 && t.refused != "" {
			w.Header().Set(control.HeaderRefused, t.refused)
		}
		t.failed.w = w
		h.translate(t.failed)
		return
	}
	respond(w, tasks, requests)
}

func usedBy(tasks []task) string {
	var all relay.Usage
	for i := range tasks {
		u := &tasks[i].used
		all.Prompt, all.Cached, all.Generated = all.Prompt+u.Prompt, all.Cached+u.Cached, all.Generated+u.Tokens()
	}
	return all.Told()
}

func respond(w http.ResponseWriter, tasks []task, requests int) {
	parts := [][]byte{[]byte(`{"predictions": [`)}
	refused, size, code := 0, 0, ""
	for i, t := range tasks {
		if i > 0 {
			parts = append(parts, []byte(", "))
		}
		parts = append(parts, t.prediction)
		if t.refused != "" {
			refused, code = refused+1, t.refused
		}
	}
	parts = append(parts, []byte("]}"))
	for _, p := range parts {
		size += len(p)
	}
	if refused > 0 && refused == requests {
		w.Header().Set(control.HeaderRefused, code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(http.StatusOK)
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return
		}
	}
}

func (h *Handler) run(ctx context.Context, outer *http.Request, tasks []*task) {
	var next atomic.Int64
	var all sync.WaitGroup
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(tasks)); i = next.Add(1) - 1 {
			h.runTask(ctx, outer, tasks[i])
		}
	}
	for range min(h.cfg.Parallel, len(tasks)) - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
}

func (h *Handler) runTask(ctx context.Context, outer *http.Request, t *task) {
	rec := &recorder{header: make(http.Header, 8), limit: int64(h.cfg.MaxAnswer)}
	inner, bad := innerRequest(ctx, outer, t.request, h.cfg.Credentials)
	if bad == nil {
		bad = h.permit(outer.Header, t.request.Body)
	}
	if bad == nil {
		rec.bare = inner.Method == http.MethodHead
		err := h.call(rec, inner)
		if err == nil {
			rec.unpack()
			t.used = rec.takeUsage(inner.URL.Path)
		}
		bad = rec.ending(ctx, err)
	}
	if bad != nil {
		rec.fail(bad)
	}
	t.refused = rec.header.Get(control.HeaderRefused)
	delete(rec.header, control.HeaderRefused)
	delete(rec.header, control.HeaderFailed)
	h.setRetryAfter(rec.header, rec.status)
	if t.prompt {
		t.complete(rec)
		return
	}
	t.prediction = AppendResponse(nil, Response{Status: rec.status, Header: rec.header, Body: rec.body})
}

func (t *task) complete(rec *recorder) {
	var c struct{ Choices []struct{ Text string } }
	if rec.status == http.StatusOK && json.Unmarshal(rec.body, &c) == nil && len(c.Choices) > 0 {
		t.prediction, t.failed = quoted(c.Choices[0].Text), nil
		return
	}
	if rec.status < http.StatusBadRequest {
		rec.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered with something that is no completion"))
	}
	t.failed = &reply{w: rec, status: rec.status, failed: rec.body}
}

func (h *Handler) permit(outer http.Header, body []byte) *api.Error {
	allowed, limited := outer[control.HeaderModels]
	if !limited {
		return nil
	}
	named := []string{}
	err := jsonfield.Each(body, func(name, value []byte) bool {
		if strings.EqualFold(string(jsonfield.Text(name)), "model") && begins(value, '"') && len(value) > 2 {
			named = append(named, string(jsonfield.Text(value)))
		}
		return true
	})
	if err != nil && len(body) > 0 {
		return api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "the body is no JSON object, so that it can't be seen whether the key may use its model: send it to its own path")
	}
	if len(named) == 0 && h.cfg.Model != "" {
		named = []string{string(h.cfg.Model)}
	}
	for _, name := range named {
		if !slices.Contains(allowed, name) {
			return api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "the key may not use the model %.100q", name)
		}
	}
	return nil
}

func (h *Handler) setRetryAfter(header http.Header, status int) {
	if status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests || header.Get("Retry-After") != "" {
		return
	}
	wait := time.Second
	if refused := h.cfg.Refusal(); refused != nil {
		wait = max(wait, refused.RetryAfter)
	}
	header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

func innerRequest(ctx context.Context, outer *http.Request, e *Request, credentials bool) (*http.Request, *api.Error) {
	url, bad := target(e.Path, e.Compat)
	if bad == nil && (!httpguts.ValidHeaderFieldName(e.Method) || len(e.Method) > 32) {
		bad = api.BadRequest("method", "the method can't be sent: want a word such as POST")
	}
	h, badHeader := header(e.Header, outer.Header, credentials)
	if bad = cmp.Or(bad, badHeader); bad != nil {
		return nil, bad
	}
	r := &http.Request{
		Method: strings.ToUpper(e.Method), URL: url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Host: outer.Host, RemoteAddr: outer.RemoteAddr, RequestURI: url.RequestURI(), ContentLength: int64(len(e.Body)), Body: http.NoBody,
	}
	if len(e.Body) > 0 {
		r.Body = newInnerBody(e.Body)
	}
	return r.WithContext(ctx), nil
}
