package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// Who is told to come again is told when: as the runtime says, or in a second.
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

// A form is one thing to everybody: nothing stands before its boundary.
func TestFormsBeginWithTheirBoundary(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) {})
	for body, want := range map[string]int{"--b\r\nx": 200, "--bb\r\nx": 400, "\r\n--b\r\n": 400, "--a\r\n\r\n--b\r\n": 400, "": 400} {
		resp, err := http.Post(b.URL+"/v1/audio/transcriptions", "multipart/form-data; boundary=b", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", body, resp.StatusCode, want)
		}
	}
}
