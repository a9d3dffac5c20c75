package pyfunc_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// TestRequestsInEnvelopesAreOrdinary checks that a request means the same in an envelope as outside.
func TestRequestsInEnvelopesAreOrdinary(t *testing.T) {
	var refused *api.Error
	h := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "body")
	}, func(c *pyfunc.Config) { c.Refusal = func() *api.Error { return refused } })
	ask := func(method, path string) pyfunc.Response {
		return predictions(t, post(t.Context(), h, call(pyfunc.Request{Method: method, Path: path})))[0]
	}
	if r := ask(http.MethodHead, "/v1/x"); r.Status != 200 || len(r.Body) != 0 {
		t.Errorf("HEAD: %d %q, want no body", r.Status, r.Body)
	}
	if r := ask(http.MethodGet, "/v1/x"); string(r.Body) != "body" {
		t.Errorf("GET: %d %q", r.Status, r.Body)
	}
	for _, path := range []string{"/health", "/ping"} {
		refused = nil
		if r := ask(http.MethodGet, path); r.Status != 200 || string(r.Body) != "\n" {
			t.Errorf("%s: %d %q, want a scoring server's answer", path, r.Status, r.Body)
		}
		if r := ask(http.MethodHead, path); r.Status != 200 || len(r.Body) != 0 {
			t.Errorf("HEAD %s: %d %q", path, r.Status, r.Body)
		}
		refused = api.Errorf(503, api.CodeAsleep, "asleep")
		if r := ask(http.MethodGet, path); r.Status != 503 {
			t.Errorf("%s asleep: %d, want 503", path, r.Status)
		}
	}
}
