package pyfunc

import (
	"bytes"
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

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/pyfunc/envelope"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Strings of a call that are no envelope begin with one of these.
var (
	wordHealth      = []byte("HEALTH_CHECK")
	wordDiagnostics = []byte("COMPUTE_DIAGNOSTICS")
)

// task is one string of a call. It belongs to the goroutine that runs it.
type task struct {
	request *envelope.Request // nil: text is the answer
	text    string
	prompt  bool // request is for a completion of it
	// Of a request, once it has run:
	answer  *buffer // the JSON string for predictions, quotes included
	refused string  // the code with which the gate refused it; empty: the runtime may have seen it
	used    relay.Usage
	failed  *reply // that a prompt has no completion
}

// tasks reads the strings of a call, which are overwritten. What is asked for
// twice is found out once.
func (h *Handler) tasks(strings [][]byte, q *query) ([]task, error) {
	tasks := make([]task, len(strings))
	texts := map[string]string{}
	once := func(key string, find func() string) string {
		if _, found := texts[key]; !found {
			texts[key] = find()
		}
		return texts[key]
	}
	for i, s := range strings {
		switch {
		case bytes.HasPrefix(s, wordHealth):
			tasks[i].text = once("", func() string { return h.health(time.Now()) })
		case bytes.HasPrefix(s, wordDiagnostics):
			_, key, found := bytes.Cut(s, []byte(":"))
			key, _, _ = bytes.Cut(key, []byte(":"))
			if !found {
				key = []byte(allDiagnostics)
			}
			tasks[i].text = once(":"+string(key), func() string { return h.diagnose(string(key)) })
		case len(bytes.TrimSpace(s)) > 0 && !begins(bytes.TrimSpace(s), '{') && !jsontext.Value(s).IsValid():
			tasks[i].request, tasks[i].prompt = h.completion(s, q), true
		default:
			r, err := envelope.ParseRequest(s)
			if err != nil {
				return nil, unexpected(fmt.Sprintf("input %d is no request: %v", i, err))
			}
			tasks[i].request = &r
		}
	}
	return tasks, nil
}

// predict runs the tasks of a call and answers it.
func (h *Handler) predict(w http.ResponseWriter, r *http.Request, tasks []task) {
	ctx, cancel := h.bounded(r.Context())
	defer cancel()
	var pending []*task
	for i := range tasks {
		if tasks[i].request != nil {
			pending = append(pending, &tasks[i])
		}
	}
	requests := len(pending)
	for len(pending) > 0 {
		h.run(ctx, r, pending)
		var again []*task
		for _, t := range pending {
			if t.refused == api.CodeBusy {
				again = append(again, t)
			}
		}
		if len(again) == len(pending) { // no sibling took a place: others have them
			break
		}
		pending = again
	}
	defer func() {
		for _, t := range tasks {
			buffers.put(t.answer)
		}
	}()
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	if r.Header[control.HeaderUsage] != nil {
		w.Header().Set(control.HeaderUsage, usedBy(tasks))
	}
	if t := slices.IndexFunc(tasks, func(t task) bool { return t.failed != nil }); t >= 0 {
		failed := tasks[t].failed
		if after := failed.w.Header().Get("Retry-After"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		if requests == 1 && tasks[t].refused != "" {
			w.Header().Set(control.HeaderRefused, tasks[t].refused)
		}
		failed.w = w
		h.translate(failed)
		return
	}
	respond(w, tasks, requests)
}

// completion asks for what goes on from a prompt, with the call's params.
func (h *Handler) completion(prompt []byte, q *query) *envelope.Request {
	body := []byte("{}")
	if begins(q.params, '{') {
		body = slices.Clone(q.params)
	}
	text, _ := jsontext.AppendQuote(nil, prompt) // the error is about what became U+FFFD
	body = jsonfield.Set(jsonfield.Set(body, "prompt", text), "stream", []byte("false"))
	if len(q.model) > 0 {
		body = jsonfield.Set(body, "model", q.model)
	}
	inner := query{body: body}
	inner.model, _ = jsonfield.Find(body, "model")
	return &envelope.Request{Method: http.MethodPost, Path: "completions", Compat: true, Header: []envelope.Field{{Name: "Content-Type", Value: "application/json"}}, Body: h.withModel(nil, &inner)}
}

// usedBy is what the tasks of a call have used, as [control.HeaderUsage] has it.
func usedBy(tasks []task) string {
	var all relay.Usage
	for i := range tasks {
		u := &tasks[i].used
		all.Prompt, all.Cached, all.Generated = all.Prompt+u.Prompt, all.Cached+u.Cached, all.Generated+u.Tokens()
	}
	return all.Told()
}

// respond writes the answers in their order.
func respond(w http.ResponseWriter, tasks []task, requests int) {
	const begin, between, end = `{"predictions": [`, `, `, `]}`
	refused, code := 0, ""
	size := len(begin) + len(end) + len(between)*max(len(tasks)-1, 0)
	for i := range tasks {
		t := &tasks[i]
		if t.request == nil {
			t.answer = buffers.get()
			t.answer.b, _ = jsontext.AppendQuote(t.answer.b, t.text) // the error is about what became U+FFFD
		}
		if t.refused != "" {
			refused, code = refused+1, t.refused
		}
		size += len(t.answer.b)
	}
	if refused > 0 && refused == requests {
		w.Header().Set(control.HeaderRefused, code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(http.StatusOK)
	out := buffers.get()
	defer buffers.put(out)
	out.b = append(out.b, begin...)
	for i, t := range tasks {
		if i > 0 {
			out.b = append(out.b, between...)
		}
		out.b = append(out.b, t.answer.b...)
		if len(out.b) > newBuffer {
			if _, err := w.Write(out.b); err != nil {
				return // the client has left
			}
			out.b = out.b[:0]
		}
	}
	_, _ = w.Write(append(out.b, end...)) // the client may have left
}

// run runs tasks, at most Parallel at a time. They have all ended when it returns.
func (h *Handler) run(ctx context.Context, outer *http.Request, tasks []*task) {
	workers := min(h.cfg.Parallel, len(tasks))
	if workers == 1 {
		for _, t := range tasks {
			h.one(ctx, outer, t)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(tasks)); i = next.Add(1) - 1 {
				h.one(ctx, outer, tasks[i])
			}
		})
	}
	all.Wait()
}

// one runs one task and keeps its answer.
func (h *Handler) one(ctx context.Context, outer *http.Request, t *task) {
	rec := &recorder{header: make(http.Header, 8), body: buffers.get(), limit: int64(h.cfg.MaxAnswer)}
	inner, bad := innerRequest(ctx, outer, t.request, h.cfg.Credentials)
	if bad == nil {
		bad = h.permit(outer.Header, t.request.Body)
	}
	if bad == nil {
		rec.bare = inner.Method == http.MethodHead
		err := h.call(rec, inner)
		_ = inner.Body.Close() // never fails
		if err == nil {
			rec.unpack()
			t.used = rec.used(inner.URL.Path)
		}
		bad = rec.settle(ctx, err)
	}
	if bad != nil {
		rec.fail(bad)
	}
	t.refused = rec.header.Get(control.HeaderRefused)
	delete(rec.header, control.HeaderRefused)
	delete(rec.header, control.HeaderFailed)
	if rec.status == http.StatusServiceUnavailable || rec.status == http.StatusTooManyRequests {
		h.askBack(rec.header)
	}
	if t.answer == nil {
		t.answer = buffers.get()
	}
	var c struct{ Choices []struct{ Text string } }
	switch {
	case !t.prompt:
	case rec.status == http.StatusOK && json.Unmarshal(rec.body.b, &c) == nil && len(c.Choices) > 0:
		t.answer.b, _ = jsontext.AppendQuote(t.answer.b[:0], c.Choices[0].Text) // the error is about what became U+FFFD
		buffers.put(rec.body)
		return
	default:
		if rec.status < http.StatusBadRequest {
			rec.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered with something that is no completion"))
		}
		t.failed = &reply{w: rec, status: rec.status, failed: slices.Clone(rec.body.b)}
	}
	t.answer.b = envelope.AppendResponse(t.answer.b[:0], envelope.Response{Status: rec.status, Header: rec.header, Body: rec.body.b})
	buffers.put(rec.body)
}

// permit says why the body of a request inside a call may not be sent: it is for a model that the call's client may not use.
func (h *Handler) permit(outer http.Header, body []byte) *api.Error {
	allowed, limited := outer[control.HeaderModels]
	if !limited {
		return nil
	}
	named := []string{}
	err := jsonfield.Each(body, 0, func(name, value []byte) bool {
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

// askBack says when to come back, where the answer does not: as the gate says, or
// in a second.
func (h *Handler) askBack(header http.Header) {
	if header.Get("Retry-After") != "" {
		return
	}
	wait := time.Second
	if refused := h.cfg.Refusal(); refused != nil {
		wait = max(wait, refused.RetryAfter)
	}
	header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// innerRequest makes the request that an envelope holds.
func innerRequest(ctx context.Context, outer *http.Request, e *envelope.Request, credentials bool) (*http.Request, *api.Error) {
	url, bad := target(e.Path, e.Compat)
	if bad != nil {
		return nil, bad
	}
	if !localhttp.ValidName(e.Method) || len(e.Method) > 32 {
		return nil, api.BadRequest("method", "the method can't be sent: want a word such as POST")
	}
	h, bad := header(e.Header, outer.Header, credentials)
	if bad != nil {
		return nil, bad
	}
	r := &http.Request{
		Method: strings.ToUpper(e.Method), URL: url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Host: outer.Host, RemoteAddr: outer.RemoteAddr, RequestURI: url.RequestURI(), ContentLength: int64(len(e.Body)), Body: http.NoBody,
	}
	if len(e.Body) > 0 {
		r.Body = &inbound{rest: e.Body}
	}
	return r.WithContext(ctx), nil
}
