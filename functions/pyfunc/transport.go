package pyfunc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// TransportConfig configures a [Transport].
type TransportConfig struct {
	// Endpoint is the URL of the scoring server, with or without /invocations at its end.
	Endpoint string
	// Token is called for each request, and its result sent as a bearer token. If it is nil or returns "", the request's own Authorization
	// is sent. Neither is put into the envelope.
	Token func() string
	Base  http.RoundTripper // nil: [http.DefaultTransport]
	// MaxAnswer bounds an answer as received, in bytes; 0: 1 GiB.
	MaxAnswer int64
}

// Transport lets any HTTP client of a Go program talk to a model through an /invocations endpoint, by envelopes. It is safe for many
// goroutines.
//
//  1. /invocations, /ping, /health and /version below the endpoint, which are the scoring server's, are sent unchanged.
//  2. Below /invocations/, as in compat clients: the path is one of OpenAI's API, below /v1/.
//  3. All others, such as /v1/chat/completions or /tokenize: the path is the model server's.
//  4. A request to another host, or not below the endpoint, is an error.
//
// A stream of events arrives as a whole. A program that needs the events as they come sends its request to /invocations itself, with
// "stream": true.
type Transport struct {
	cfg  TransportConfig
	url  *url.URL // of /invocations
	root string   // path of the endpoint, without /invocations and a slash at its end
}

const invocations = "/invocations"

// NewTransport sends nothing.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("pyfunc: endpoint: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("pyfunc: the endpoint is %q: want a URL such as https://host/serving-endpoints/NAME/invocations", u.Redacted())
	}
	if cfg.MaxAnswer < 0 {
		return nil, errors.New("pyfunc: MaxAnswer is negative")
	}
	cfg.MaxAnswer = cmp.Or(cfg.MaxAnswer, 1<<30)
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	root := strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), invocations), "/")
	return &Transport{cfg: cfg, url: &url.URL{Scheme: u.Scheme, Host: u.Host, Path: root + invocations}, root: root}, nil
}

// RoundTrip sends r through the endpoint. A refusal of the endpoint itself is an answer with its status and an OpenAI error body. An
// error means that there was no answer, or not one of a scoring server.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := Request{Method: cmp.Or(r.Method, http.MethodGet), Header: Fields(r.Header, isOuter)}
	own, err := t.setPath(&inner, r.URL)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport must close it
		}
		return nil, err
	}
	if own {
		r = r.Clone(r.Context())
		t.authorize(r)
		return t.cfg.Base.RoundTrip(r)
	}
	if inner.Body, err = readBody(r); err != nil {
		return nil, err
	}
	outer, err := t.outer(r, inner)
	if err != nil {
		return nil, err
	}
	resp, err := t.cfg.Base.RoundTrip(outer)
	if err != nil {
		return nil, err // as Base returned it: http.Client wraps it, and callers look for its type
	}
	defer resp.Body.Close()
	return t.answer(r, resp)
}

func (t *Transport) setPath(inner *Request, u *url.URL) (own bool, err error) {
	below := (&url.URL{Scheme: t.url.Scheme, Host: t.url.Host, Path: t.root}).String() + "/v1"
	if !strings.EqualFold(u.Host, t.url.Host) || u.Scheme != t.url.Scheme {
		return false, fmt.Errorf("pyfunc: %s://%s is not the endpoint %s: set the client's base URL to one below %s", u.Scheme, u.Host, t.url, below)
	}
	rest, found := strings.CutPrefix(u.EscapedPath(), (&url.URL{Path: t.root}).EscapedPath())
	if !found || rest != "" && rest[0] != '/' {
		return false, fmt.Errorf("pyfunc: the path %s is not below the endpoint: set the client's base URL to one below %s", u.Path, below)
	}
	switch rest {
	case invocations, "/ping", "/health", "/version": // 1.
		return true, nil
	}
	if path, found := strings.CutPrefix(rest, invocations+"/"); found { // 2.
		rest, inner.Compat = "/"+path, !strings.HasPrefix(path, "v1/")
	}
	inner.Path = cmp.Or(rest, "/")
	if u.RawQuery != "" {
		inner.Path += "?" + u.RawQuery
	}
	return false, nil
}

func (t *Transport) authorize(r *http.Request) {
	if t.cfg.Token == nil {
		return
	}
	if token := t.cfg.Token(); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("pyfunc: read the request's body: %w", err)
	}
	return body, nil
}

func isOuter(name string) bool {
	return slices.Contains([]string{"Authorization", "Cookie", "Host", "Content-Length", "Expect", "Accept-Encoding"}, name)
}

func (t *Transport) outer(r *http.Request, inner Request) (*http.Request, error) {
	body := make([]byte, 0, len(inner.Body)+len(inner.Body)/4+512)
	body = append(AppendRequest(append(body, `{"inputs": [`...), inner), `]}`...)
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("pyfunc: %w", err)
	}
	out.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"X-Request-Id", "Traceparent", "Tracestate", "Authorization"} {
		if v := r.Header[name]; len(v) > 0 {
			out.Header[name] = v
		}
	}
	t.authorize(out)
	return out, nil
}

func (t *Transport) read(ctx context.Context, resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, t.cfg.MaxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("pyfunc: read the answer of %s: %w", t.url, err)
	case int64(len(body)) > t.cfg.MaxAnswer:
		return nil, fmt.Errorf("pyfunc: the answer of %s is larger than %d bytes: ask for less, or raise MaxAnswer", t.url, t.cfg.MaxAnswer)
	}
	return body, nil
}

// answer converts the endpoint's answer: 1. a redirect is not followed: the request would go to another host without its envelope; 2. the
// endpoint refused; 3. the envelope's answer.
func (t *Transport) answer(r *http.Request, resp *http.Response) (*http.Response, error) {
	raw, err := t.read(r.Context(), resp)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode/100 == 3: // 1.
		return nil, fmt.Errorf("pyfunc: %s redirects to %q: set the endpoint to where it is", t.url, resp.Header.Get("Location"))
	case resp.StatusCode != http.StatusOK: // 2.
		h := resp.Header.Clone()
		h.Del("Connection")
		h.Set("Content-Type", "application/json")
		return memoryAnswer(r, resp.StatusCode, h, openAIRefusal(resp.StatusCode, raw)), nil
	}
	inner, err := firstPrediction(raw) // 3.
	if err != nil {
		return nil, fmt.Errorf("pyfunc: %s did not answer like a scoring server with envelopes: %w", t.url, err)
	}
	return memoryAnswer(r, inner.Status, inner.Header, inner.Body), nil
}

func firstPrediction(raw []byte) (Response, error) {
	if !utf8.Valid(raw) {
		return Response{}, errors.New("it is not UTF-8")
	}
	o := jsonfield.Open(raw)
	list, _ := o.Find("predictions")
	var first []byte
	err := o.Err()
	if err == nil && jsonfield.Items(list, func(item []byte) bool { first = item; return item[0] != '"' }) != nil {
		err = errors.New(`it has no list "predictions"`)
	}
	if err == nil && (first == nil || first[0] != '"') {
		err = errors.New("its first prediction is no string")
	}
	if err != nil {
		return Response{}, err
	}
	return ParseResponse(jsonfield.Text(first))
}

const maxExcerpt = 1 << 10

// openAIRefusal prefers the endpoint's own OpenAI object, then MLflow's message, then the beginning of the text.
func openAIRefusal(status int, raw []byte) []byte {
	var body struct {
		Code    string          `json:"error_code"`
		Message string          `json:"message"`
		OpenAI  json.RawMessage `json:"error"`
	}
	var given struct{ Message string }
	if err := json.Unmarshal(raw, &body); err != nil {
		body.Message = ""
	} else if json.Unmarshal(body.OpenAI, &given) == nil && given.Message != "" {
		out, _ := json.Marshal(map[string]json.RawMessage{"error": body.OpenAI})
		return out
	}
	made := &api.Error{Message: body.Message, Code: body.Code, Type: "api_error"}
	if body.Message == "" {
		text := bytes.TrimSpace(raw)
		made.Message = fmt.Sprintf("the endpoint answered %d %s: %s", status, http.StatusText(status), bytes.ToValidUTF8(text[:min(len(text), maxExcerpt)], nil))
	}
	if status < 500 {
		made.Type = "invalid_request_error"
	}
	out, _ := made.MarshalJSON()
	return out
}

func memoryAnswer(r *http.Request, status int, header http.Header, body []byte) *http.Response {
	if utf8.Valid(body) { // a stock server may leave the header of a compressed body; no compressed body is UTF-8
		header.Del("Content-Encoding")
	}
	header.Del("Transfer-Encoding")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}
