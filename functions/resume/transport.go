package resume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Config configures a [Transport].
type Config struct {
	Next http.RoundTripper
	// Model is called at each request.
	Model func() Model
	// Adapter returns the folder of an adapter, empty if unknown; nil: there are none.
	Adapter func(name string) (path string, found bool)
	Logger  *slog.Logger
}

// Transport passes clients' requests to vLLM, and reports the state of their streams if the activator asks for it.
type Transport struct {
	cfg  Config
	deaf atomic.Bool // this vLLM does not report token IDs

	mu   sync.Mutex // guards seen; held while files are checked
	seen seen
}

// New returns a transport.
func New(cfg Config) *Transport {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Transport{cfg: cfg}
}

const notTold = "this version of vLLM does not tell the ids of tokens"

// RoundTrip implements [http.RoundTripper]. If the state was asked for and can't be reported, the answer's header [control.HeaderState]
// says why.
func (t *Transport) RoundTrip(in *http.Request) (*http.Response, error) {
	said, is := in.Header[control.HeaderState]
	if !is || len(said) == 0 {
		return t.cfg.Next.RoundTrip(in)
	}
	if path := in.URL.Path; path != pathChat && path != pathText {
		if control.KnownState(said[0]) { // another runtime's
			x := exchange{Transport: t, in: in}
			return x.refuse("streams of " + path + " can't be continued at another instance of this runtime"), nil
		}
		r := in.Clone(in.Context())
		delete(r.Header, control.HeaderState)
		resp, err := t.cfg.Next.RoundTrip(r)
		return untold(resp, "streams of "+path+" can't be continued at another instance of this runtime"), err
	}
	body, err := readBody(in)
	if err != nil {
		return nil, err
	}
	a, why := qualify(in.URL.Path, body)
	m := model{}
	if why == "" {
		m, why = t.model(a, said[0] == control.StateNew)
	}
	if why == "" && t.deaf.Load() {
		why = notTold
	}
	x := exchange{Transport: t, in: in, body: body, asked: a, model: m}
	switch {
	case said[0] != control.StateNew:
		return x.goOn(said[0], why)
	case why != "":
		resp, err := x.send(in.URL.Path, body)
		return untold(resp, why), err
	}
	return x.begin()
}

func untold(resp *http.Response, why string) *http.Response {
	if resp != nil {
		resp.Header[control.HeaderState] = []string{why}
	}
	return resp
}

func readBody(in *http.Request) ([]byte, error) {
	if in.Body == nil {
		return nil, nil
	}
	defer in.Body.Close()
	return io.ReadAll(in.Body)
}

type exchange struct {
	*Transport
	in    *http.Request
	body  []byte
	asked *asked
	model model
}

func (x *exchange) send(path string, body []byte) (*http.Response, error) {
	r := x.in.Clone(x.in.Context())
	delete(r.Header, control.HeaderState)
	delete(r.Header, "Content-Length")
	r.URL = &url.URL{Scheme: x.in.URL.Scheme, Host: x.in.URL.Host, Path: path}
	if path == x.in.URL.Path {
		r.URL.RawQuery = x.in.URL.RawQuery
	}
	r.ContentLength, r.Body, r.GetBody = 0, http.NoBody, nil
	if len(body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.ContentLength, r.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	}
	return x.cfg.Next.RoundTrip(r)
}

func streams(resp *http.Response) bool {
	return resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

func (x *exchange) begin() (*http.Response, error) {
	resp, err := x.send(x.in.URL.Path, jsonfield.Set(x.body, "return_token_ids", []byte("true")))
	if err != nil || !streams(resp) {
		return resp, err
	}
	e := newEvents(resp.Body, x.asked.chat)
	e.stream.mark = x.model.mark
	e.peek()
	if e.why != "" {
		untold(resp, e.why)
	}
	if e.why == notTold && !x.deaf.Swap(true) {
		x.cfg.Logger.Info("streams can't continue at another instance: " + notTold)
	}
	resp.Body = e
	return resp, nil
}

// why is the reason to refuse the request, or empty.
func (x *exchange) goOn(state, why string) (*http.Response, error) {
	s, ok := parse(state)
	switch {
	case why != "":
		return x.refuse(why), nil
	case !ok:
		return x.refuse("it is not a state of this runtime's streams"), nil
	case s.mark != x.model.mark:
		return x.refuse("it has another model or other options"), nil
	case s.lost:
		return x.refuse("its events had more than text"), nil
	case s.finished:
		return x.ended(s), nil
	}
	tokens, details, resp, err := x.prompt(s)
	if resp != nil || err != nil {
		return resp, err
	}
	dropped, err := x.incomplete(slices.Concat(tokens, s.tokens), len(s.tokens))
	if err != nil {
		return x.unknown(err)
	}
	if dropped < 0 {
		return x.refuse("its text so far ends within a character"), nil
	}
	s.tokens = s.tokens[:len(s.tokens)-dropped]
	left, err := x.left(s)
	if err != nil {
		return x.unknown(err)
	}
	if left <= 0 {
		return x.ended(s), nil
	}
	resp, err = x.send(pathText, x.rest(s, append(tokens, s.tokens...), left))
	if err != nil || !streams(resp) {
		return resp, err
	}
	e := newEvents(resp.Body, x.asked.chat)
	e.fresh, e.resumed, e.stream, e.made, e.dropped, e.details = false, true, *s, len(s.tokens), dropped, details
	resp.Body = e
	return resp, nil
}

func (x *exchange) unknown(err error) (*http.Response, error) {
	var no *refusal
	if errors.As(err, &no) {
		return x.refuse(no.Error()), nil
	}
	return nil, err
}

func (x *exchange) refuse(why string) *http.Response {
	text, _ := json.Marshal(map[string]any{"error": map[string]any{
		"message": "the answer was cut, and another instance does not go on with it: " + why, "type": "invalid_request_error", "param": nil, "code": api.CodeStreamCut}})
	return x.made(http.StatusBadRequest, "application/json", text)
}

func (x *exchange) made(status int, kind string, text []byte) *http.Response {
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: x.in}
}

// ended answers with the end of a stream all of whose tokens were generated.
func (x *exchange) ended(s *stream) *http.Response {
	var out []byte
	event := func(piece string, body []byte) {
		out = append(append(append(append(append(out, control.StateComment...), piece...), "\ndata: "...), body...), "\n\n"...)
	}
	if !s.finished {
		event(piece(nil, 0, true), s.chunk(x.asked.chat, nil, []byte(`"length"`), []byte("null"), nil))
	}
	if (x.asked.usage || x.model.usage) && !s.counted {
		event("u", s.envelope(x.asked.chat, []byte("[]"), fmt.Appendf(nil, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, s.prompt, s.prompt+len(s.tokens), len(s.tokens))))
	}
	return x.made(http.StatusOK, "text/event-stream; charset=utf-8", append(out, "data: [DONE]\n\n"...))
}

func (x *exchange) rest(s *stream, tokens []int64, left int) []byte {
	body := map[string]any{"model": x.asked.model, "prompt": tokens, "max_tokens": left, "stream": true, "return_token_ids": true}
	for name, value := range x.asked.rest {
		body[name] = value
	}
	if least := x.asked.least - len(s.tokens); least > 0 {
		body["min_tokens"] = least
	}
	text, _ := json.Marshal(body)
	return text
}
