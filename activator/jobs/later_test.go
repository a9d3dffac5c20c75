package jobs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
)

// later requests an answer later.
func (b *bench) later(tenant, body string, header ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(http.MethodPost, "/v1/chat/completions", tenant, strings.NewReader(body), append([]string{"Prefer", "respond-async", "Content-Type", "application/json"}, header...)...)
}

// answered waits for the answer of a request.
func (b *bench) answered(tenant, url string) *httptest.ResponseRecorder {
	b.t.Helper()
	for range 10_000 {
		w := b.do(http.MethodGet, url, tenant, nil)
		if w.Code != http.StatusAccepted {
			return w
		}
		if w.Header().Get("Retry-After") == "" || w.Header().Get("Location") != url {
			b.t.Errorf("not yet, with %v", w.Header())
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	b.t.Fatal("no answer comes")
	return nil
}

// TestLater: a request is on disk before the 202, is served as if its client had just sent it, though its model
// sleeps, and its answer is stored.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.front.set("m", activator.Room{Slots: 4, Wake: time.Minute})
		w := b.later("a", `{"model":"m","n":1}`, "Authorization", "Bearer secret", "X-Session-Id", "s")
		url := w.Header().Get("Location")
		o := want[laterObject](b, http.StatusAccepted, w)
		if o.URL != url || o.Status != "in_progress" || w.Header().Get("Preference-Applied") != "respond-async" || o.Expires-o.Created != 3600 {
			t.Errorf("taken in as %+v, %v", o, w.Header())
		}
		if all := b.unanswered(); len(all) != 1 || all[0].Header.Get("Authorization") != "" || all[0].Header.Get("X-Session-Id") != "s" {
			t.Errorf("on disk is %+v", all)
		}
		if w := b.do(http.MethodGet, url, "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("another tenant's: %d", w.Code)
		}
		w = b.answered("a", url)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `{"echo":{"model":"m","n":1}`) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
		if seen := b.front.requests(); len(seen) != 1 || seen[0].terms.Background || seen[0].caller.Account != "key a" {
			t.Errorf("it came through as %+v", seen)
		}
		if w := b.do(http.MethodDelete, url, "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("another tenant deletes it: %d", w.Code)
		}
		if w := b.do(http.MethodDelete, url, "a", nil); w.Code != http.StatusOK {
			t.Errorf("delete: %d %s", w.Code, w.Body)
		}
		if w := b.do(http.MethodGet, url, "a", nil); w.Code != http.StatusNotFound || b.store.Bytes() != 0 {
			t.Errorf("after that: %d, %d bytes", w.Code, b.store.Bytes())
		}
	})
}

// TestLaterRefused: a request that would be refused anyway is refused at once.
func TestLaterRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxLater: 1})
		b.front.bad["none"] = api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no such model")
		for body, status := range map[string]int{`{"model":"m","stream":true}`: 400, `{`: 400, ``: 400} {
			if w := b.later("a", body); w.Code != status {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		}
		if w := b.later("a", `{"model":"none"}`); w.Body.String() != `next /v1/chat/completions {"model":"none"}` {
			t.Errorf("a model that is not there: %d %s", w.Code, w.Body)
		}
		if w := b.later("a", `{"model":"m"}`, "X-Request-Timeout", "soon"); w.Code != http.StatusBadRequest {
			t.Errorf("a wrong time limit: %d %s", w.Code, w.Body)
		}
		if w := b.later("nobody", `{"model":"m"}`); w.Code != http.StatusUnauthorized {
			t.Errorf("without a key: %d %s", w.Code, w.Body)
		}
		if w := b.do(http.MethodPost, "/tokens", "a", strings.NewReader("x"), "Prefer", "respond-async"); w.Body.String() != "next /tokens x" {
			t.Errorf("another path: %d %s", w.Code, w.Body)
		}
		r := httptest.NewRequest(http.MethodPost, "http://own.example/v1/chat/completions", strings.NewReader("x"))
		r.Header.Set("Prefer", "respond-async")
		w := httptest.NewRecorder()
		if b.handler.ServeHTTP(w, r); w.Body.String() != "next /v1/chat/completions x" {
			t.Errorf("a function's own host: %d %s", w.Code, w.Body)
		}
		if all := b.unanswered(); len(all) != 0 || b.store.Bytes() != 0 {
			t.Errorf("left are %v", all)
		}
		b.later("a", `{"model":"m"}`)
		if w := b.later("a", `{"model":"m"}`); w.Code != http.StatusTooManyRequests {
			t.Errorf("more than there may be: %d %s", w.Code, w.Body)
		}
		if w := b.later("b", `{"model":"m"}`); w.Code != http.StatusAccepted {
			t.Errorf("another tenant's: %d %s", w.Code, w.Body)
		}
	})
}

// TestLaterWaits: with wait, a client gets an answer that comes in time.
func TestLaterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		if w := b.later("a", `{"model":"m"}`, "Prefer", "wait=10"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "echo") {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		b.front.mu.Lock()
		b.front.answer = echo(time.Minute)
		b.front.mu.Unlock()
		began := time.Now()
		if w := b.later("a", `{"model":"m"}`, "Prefer", "wait=10"); w.Code != http.StatusAccepted || time.Since(began) != 10*time.Second {
			t.Errorf("got %d after %s", w.Code, time.Since(began))
		}
		b.front.mu.Lock()
		b.front.answer = echo(30 * time.Second)
		b.front.mu.Unlock()
		if w := b.later("a", `{"model":"m"}`, "Prefer", "wait=9223372037"); w.Code != http.StatusOK { // nanoseconds overflow
			t.Errorf("after a long wait: %d %s", w.Code, w.Body)
		}
	})
}

// TestLaterAgain: a refused request is sent again, also by the next server; an instance's error is its answer in the
// end.
func TestLaterAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		var n atomic.Int32
		b.front.answer = func(w http.ResponseWriter, r *http.Request, body string) {
			switch n.Add(1) {
			case 1, 2, 3, 4, 5:
				api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, queue.CodeHoldTimeout, "later").WithRetryAfter(time.Second))
			case 6:
				<-r.Context().Done()
				api.WriteError(w, context.Cause(r.Context()))
			default:
				echo(0)(w, r, body)
			}
		}
		url := b.later("a", `{"model":"m"}`).Header().Get("Location")
		time.Sleep(time.Minute)
		b.stop()
		b.start(Config{})
		if w := b.answered("a", url); w.Code != http.StatusOK || n.Load() != 7 {
			t.Errorf("got %d %s after %d attempts", w.Code, w.Body, n.Load())
		}
		b.front.answer = func(w http.ResponseWriter, _ *http.Request, _ string) {
			n.Add(1)
			api.WriteError(w, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "it fell over"))
		}
		n.Store(0)
		url = b.later("a", `{"model":"m"}`).Header().Get("Location")
		if w := b.answered("a", url); w.Code != http.StatusBadGateway || n.Load() != 3 || !strings.Contains(w.Body.String(), "fell over") {
			t.Errorf("got %d %s after %d attempts", w.Code, w.Body, n.Load())
		}
	})
}

// TestLaterEnds: a deleted request is ended; one without an answer in time has that as its answer.
func TestLaterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		var ended atomic.Int32
		b.front.answer = func(w http.ResponseWriter, r *http.Request, _ string) {
			<-r.Context().Done()
			ended.Add(1)
			api.WriteError(w, context.Cause(r.Context()))
		}
		url := b.later("a", `{"model":"m"}`).Header().Get("Location")
		synctest.Wait()
		if w := b.do(http.MethodDelete, url, "a", nil); w.Code != http.StatusOK {
			t.Errorf("delete: %d %s", w.Code, w.Body)
		}
		synctest.Wait()
		if ended.Load() != 1 || b.store.Bytes() != 0 {
			t.Errorf("%d requests were ended, %d bytes are left", ended.Load(), b.store.Bytes())
		}
		began := time.Now()
		url = b.later("a", `{"model":"m"}`, "X-Request-Timeout", "90").Header().Get("Location")
		w := b.answered("a", url)
		if took := time.Since(began); w.Code != http.StatusGatewayTimeout || took < 89*time.Second || took > 92*time.Second || !strings.Contains(w.Body.String(), "request_timeout") {
			t.Errorf("after %s: %d %s", took, w.Code, w.Body)
		}
	})
}

// TestWithout: without a store, its paths explain how to configure one.
func TestWithout(t *testing.T) {
	h := Without(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") }), func(host string) bool { return host == "own" }, "give --store")
	for _, tc := range []struct{ host, path, want string }{
		{"x", "/v1/files", "404 .*give --store"}, {"x", "/v1/batches/b", "404 .*give --store"}, {"own", "/v1/files", "200 next"}, {"x", "/v1/models", "200 next"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://"+tc.host+tc.path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := fmt.Sprint(w.Code, " ", w.Body)
		for word := range strings.SplitSeq(tc.want, ".*") {
			if !strings.Contains(got, word) {
				t.Errorf("%s%s: %s, want %s", tc.host, tc.path, got, tc.want)
			}
		}
	}
}
