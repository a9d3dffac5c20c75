package pyfunc_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	bodies "github.com/rouse-dev/rouse/internal/inbound"
)

// TestBounds checks the limits of the memory that one call can use.
func TestBounds(t *testing.T) {
	h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/bomb" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 1<<20))
			_ = z.Close()
			return
		}
		_, err := io.WriteString(w, strings.Repeat("x", 3000))
		if r.URL.Path == "/v1/long" && err == nil {
			t.Error("a writer that goes on is not told to stop")
		}
	}, func(c *pyfunc.Config) {
		c.Door, c.MaxAnswer = bodies.New(bodies.Config{MaxBody: 1000}), 2000
	})
	for _, path := range []string{"/bomb", "/long"} {
		p := predictions(t, post(t.Context(), h, call(get(path))))[0]
		if p.Status != http.StatusBadGateway || !strings.Contains(string(p.Body), `"code":"body_too_large"`) {
			t.Errorf("%s: %d %.200s", path, p.Status, p.Body)
		}
	}
	long := call(pyfunc.Request{Method: "POST", Path: "/x", Body: make([]byte, 1000)})
	for _, body := range []io.Reader{strings.NewReader(long), io.MultiReader(strings.NewReader(long))} { // with a known length, and without
		r := httptest.NewRequest(http.MethodPost, "/invocations", body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "1000 B") && !strings.Contains(w.Body.String(), "limit") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	many := newHandler(t, http.NotFound)
	if w := post(t.Context(), many, `{"inputs": ["HEALTH_CHECK"`+strings.Repeat(`,"HEALTH_CHECK"`, 1024)+`]}`); w.Code != 400 || !strings.Contains(w.Body.String(), "has 1025 inputs and may have 1024") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestTimeout checks the time limit of a call: a 504 of its own inside envelopes, else MLflow's.
func TestTimeout(t *testing.T) {
	limit := func(c *pyfunc.Config) { c.Timeout = time.Second }
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/quick" {
			fmt.Fprint(w, "ok")
			return
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	synctest.Test(t, func(t *testing.T) {
		p := predictions(t, post(t.Context(), newHandler(t, slow, limit), call(get("/slow"), get("/quick"))))
		if p[0].Status != 504 || !strings.Contains(string(p[0].Body), api.CodeRequestTimeout) || p[1].Status != 200 {
			t.Errorf("%+v", p)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := post(t.Context(), newHandler(t, slow, limit), `{"messages": []}`)
		if got := w.Body.String(); w.Code != 504 || got != "Request processing time exceeded limit" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %v %s", w.Code, w.Header(), got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := post(t.Context(), newHandler(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				time.Sleep(time.Second)
			}
		}, limit), `{"messages": [], "stream": true}`)
		if got := w.Body.String(); got != "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n" {
			t.Errorf("a stream that has begun ended with %q", got)
		}
	})
}

func TestTooDeep(t *testing.T) {
	h := newHandler(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for _, open := range []string{"[", `{"a":`} {
		w := post(t.Context(), h, `{"messages": `+strings.Repeat(open, 600))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "deep") {
			t.Errorf("%s…: %d %s, want 400 and what is wrong", open, w.Code, w.Body)
		}
	}
}
