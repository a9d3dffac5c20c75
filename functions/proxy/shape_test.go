package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// A retriable answer has a Retry-After: the runtime's, or a second.
func TestRetryAfter(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		if after := r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(map[string]int{"1": 429, "2": 503, "3": 400}[r.URL.Query().Get("status")])
	})
	for query, want := range map[string]string{"status=1&after=7": "7", "status=2&after=8": "8", "status=1": "1", "status=2": "1", "status=3": ""} {
		resp, _, err := b.post(t, "/v1/chat/completions?"+query, "{}")
		if err != nil || resp.Header.Get("Retry-After") != want {
			t.Errorf("%s: %v, Retry-After %q, want %q", query, err, resp.Header.Get("Retry-After"), want)
		}
	}
}

// Each API's clients get errors in its own shape.
func TestShapesOfErrors(t *testing.T) {
	b := set(t, nil)
	b.gate.refused = api.Errorf(503, api.CodeAsleep, "asleep")
	for path, want := range map[string]string{
		"/v1/chat/completions":      `{"error":{"message":"asleep"`,
		"/v1/messages":              `{"type":"error","error":{"type":"overloaded_error","message":"asleep","code":"asleep"}}`,
		"/v1/messages/count_tokens": `{"type":"error","error":{"type":"overloaded_error",`,
		"/api/chat":                 `{"error":"asleep"}`,
	} {
		if _, got, err := b.post(t, path, "{}"); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
}

// failing is a dialect that rewrites failures, except a client's own.
type failing struct{}

func (failing) Request(string, *jsonfield.Object) *api.Error { return nil }
func (failing) Failure(_ string, status int, body []byte) []byte {
	if status < 500 {
		return body
	}
	return []byte(`{"error":{"message":"it failed"}}` + "\n")
}

// The runtime's description of its own failure in the middle of a stream reaches no client.
func TestFailuresInStreams(t *testing.T) {
	const word = `{"choices":[{"delta":{"content":"error"}}],"error":null}`
	for _, tc := range []struct{ path, kind, text, want string }{
		{"/v1/chat/completions", "text/event-stream", "data: " + word + "\n\ndata: {\"error\":{\"message\":\"/secret\",\"code\":500}}\r\n\r\ndata: [DONE]\n\n",
			"data: " + word + "\n\ndata: {\"error\":{\"message\":\"it failed\"}}\r\n\r\ndata: [DONE]\n\n"},
		{"/v1/chat/completions", "text/event-stream", "data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n", "data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n"},
		{"/v1/messages", "text/event-stream", "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"/secret\"}}\n\n", "event: error\ndata: {\"error\":{\"message\":\"it failed\"}}\n\n"},
		{"/api/chat", "application/x-ndjson", "{\"message\":{\"content\":\"\\\"error\\\"\"}}\n{\"error\":\"/secret\"}\n", "{\"message\":{\"content\":\"\\\"error\\\"\"}}\n{\"error\":{\"message\":\"it failed\"}}\n"},
	} {
		b := set(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tc.kind)
			_, _ = w.Write([]byte(tc.text))
		}, func(c *proxy.Config) { c.Dialect = failing{} })
		if _, got, err := b.post(t, tc.path, `{"stream":true}`); got != tc.want || err != nil {
			t.Errorf("%s: %v, got\n%q, want\n%q", tc.path, err, got, tc.want)
		}
	}
}

// A form must begin with its boundary, so that all parsers agree on it.
func TestFormsBeginWithTheirBoundary(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) {})
	for body, want := range map[string]int{"--b\r\nContent-Disposition: form-data; name=x\r\n\r\nx\r\n--b--": 200, "--b\r\nx": 400, "--bb\r\nx": 400, "\r\n--b\r\n": 400, "--a\r\n\r\n--b\r\n": 400, "": 400} {
		resp, err := http.Post(b.URL+"/v1/audio/transcriptions", "multipart/form-data; boundary=b", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", body, resp.StatusCode, want)
		}
	}
}
