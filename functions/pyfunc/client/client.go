package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/functions/pyfunc/envelope"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Config of a [Transport].
type Config struct {
	// Endpoint is the URL of the scoring server, with /invocations at its end or without.
	Endpoint string
	// Token is called for each request and sent as a bearer token. Nil, or empty:
	// the request's own Authorization is sent, if it has one. Neither is put into the
	// envelope: it is for the endpoint, not for the model server.
	Token func() string
	// Base sends; nil: [http.DefaultTransport].
	Base http.RoundTripper
	// MaxAnswer bounds an answer, in bytes, as it comes; 0: 1 GiB.
	MaxAnswer int64
}

// Transport is an [http.RoundTripper] through an endpoint, see the package
// comment. It is safe for many goroutines, and keeps no state but that of Base.
type Transport struct {
	cfg  Config
	url  *url.URL // of /invocations
	root string   // path of the endpoint without /invocations and without a slash at its end
}

const invocations = "/invocations"

// New makes a transport. It sends nothing.
func New(cfg Config) (*Transport, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("client: endpoint: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("client: the endpoint is %q: want a URL such as https://host/serving-endpoints/NAME/invocations", u.Redacted())
	}
	if cfg.MaxAnswer < 0 {
		return nil, errors.New("client: MaxAnswer is negative")
	}
	if cfg.MaxAnswer == 0 {
		cfg.MaxAnswer = 1 << 30
	}
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	root := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), invocations)
	root = strings.TrimRight(root, "/")
	return &Transport{cfg: cfg, url: &url.URL{Scheme: u.Scheme, Host: u.Host, Path: root + invocations}, root: root}, nil
}

// RoundTrip sends r through the endpoint. It reads and closes r's body, and ends
// when r's context ends. What the endpoint itself refuses comes back as an answer
// with the endpoint's status and an OpenAI error body; an error means that there
// was no answer, or none of a scoring server.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	path, compat, own, err := t.path(r.URL)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport must, and the error is known already
		}
		return nil, err
	}
	if own {
		return t.pass(r)
	}
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	outer, err := t.outer(r, envelope.Request{Method: methodOf(r), Path: path, Header: fields(r.Header), Body: body, Compat: compat})
	if err != nil {
		return nil, err
	}
	resp, err := t.cfg.Base.RoundTrip(outer)
	if err != nil {
		return nil, err // as Base said it: http.Client wraps it, and callers look for its type
	}
	defer resp.Body.Close()
	return t.answer(r, resp)
}

// path finds what the model server is asked for; own: the scoring server is.
func (t *Transport) path(u *url.URL) (path string, compat, own bool, err error) {
	if !strings.EqualFold(u.Host, t.url.Host) || u.Scheme != t.url.Scheme {
		return "", false, false, fmt.Errorf("client: %s://%s is not the endpoint %s: set the client's base URL to one below %s", u.Scheme, u.Host, t.url, t.below())
	}
	rest, found := strings.CutPrefix(u.EscapedPath(), (&url.URL{Path: t.root}).EscapedPath())
	if !found || rest != "" && rest[0] != '/' {
		return "", false, false, fmt.Errorf("client: the path %s is not below the endpoint: set the client's base URL to one below %s", u.Path, t.below())
	}
	switch rest {
	case invocations, "/ping", "/health", "/version": // 1.
		return "", false, true, nil
	}
	if inner, found := strings.CutPrefix(rest, invocations+"/"); found { // 2.
		rest, compat = "/"+inner, !strings.HasPrefix(inner, "v1/")
	}
	if rest == "" {
		rest = "/"
	}
	if u.RawQuery != "" {
		rest += "?" + u.RawQuery
	}
	return rest, compat, false, nil
}

func (t *Transport) below() string {
	return (&url.URL{Scheme: t.url.Scheme, Host: t.url.Host, Path: t.root}).String() + "/v1"
}

// pass sends a request to the scoring server itself.
func (t *Transport) pass(r *http.Request) (*http.Response, error) {
	if token := t.token(); token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return t.cfg.Base.RoundTrip(r) // as Base said it
}

func (t *Transport) token() string {
	if t.cfg.Token == nil {
		return ""
	}
	return t.cfg.Token()
}

func methodOf(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// bodyOf reads a request's body and closes it; nil: it has none.
func bodyOf(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength < 64<<20 {
		b.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(r.Body); err != nil {
		return nil, fmt.Errorf("client: read the request's body: %w", err)
	}
	if b.Len() == 0 {
		return []byte{}, nil
	}
	return b.Bytes(), nil
}

// kept says whether a header is not put into the envelope: it belongs to the
// connection, to the endpoint, or follows from the body.
func kept(name string) bool {
	switch name {
	case "Authorization", "Cookie", "Host", "Content-Length", "Expect", "Accept-Encoding":
		return true
	}
	return localhttp.PerConnection(name)
}

// fields are the headers that are put into the envelope.
func fields(h http.Header) []envelope.Field {
	all := make([]envelope.Field, 0, len(h))
	for name, values := range h {
		if !kept(http.CanonicalHeaderKey(name)) && len(values) > 0 {
			all = append(all, envelope.Field{Name: strings.ToLower(name), Value: strings.Join(values, ", ")})
		}
	}
	slices.SortFunc(all, func(a, b envelope.Field) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// joined are headers that the call has too: what joins logs and traces together.
var joined = []string{"X-Request-Id", "Traceparent", "Tracestate"}

// outer makes the call of the endpoint.
func (t *Transport) outer(r *http.Request, inner envelope.Request) (*http.Request, error) {
	body := make([]byte, 0, len(inner.Body)+len(inner.Body)/4+512)
	body = append(envelope.AppendRequest(append(body, `{"inputs": [`...), inner), `]}`...)
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	out.Header.Set("Content-Type", "application/json")
	for _, name := range joined {
		if v := r.Header[name]; len(v) > 0 {
			out.Header[name] = v
		}
	}
	if token := t.token(); token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
	} else if v := r.Header["Authorization"]; len(v) > 0 {
		out.Header["Authorization"] = v
	}
	return out, nil
}

// read reads an answer's body, at most MaxAnswer of it.
func (t *Transport) read(ctx context.Context, resp *http.Response) ([]byte, error) {
	var b bytes.Buffer
	if n := resp.ContentLength; n > 0 && n < 64<<20 {
		b.Grow(int(n) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(resp.Body, t.cfg.MaxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("client: read the answer of %s: %w", t.url, err)
	case n > t.cfg.MaxAnswer:
		return nil, fmt.Errorf("client: the answer of %s is larger than %d bytes: ask for less, or raise MaxAnswer", t.url, t.cfg.MaxAnswer)
	}
	return b.Bytes(), nil
}
