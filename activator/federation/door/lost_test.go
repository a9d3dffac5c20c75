package door_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
)

// TestRuntimeFails: if a runtime ends before a request's first byte, in a cluster without another slot for it, the
// front door retries the request, in every API's format.
func TestRuntimeFails(t *testing.T) {
	t.Parallel()
	for _, path := range []string{chatPath, "/v1/messages", "/api/chat"} {
		t.Run(path, func(t *testing.T) {
			server, pool := authority(t)
			f := newFront(t, server, declared("west", "w", "default/chat"))
			west := newCluster(t, "west", "w", pool, chat, f.at)
			answer := west.answer
			var tries atomic.Int32
			west.answer = func(w http.ResponseWriter, r *http.Request) {
				if tries.Add(1) > 1 {
					answer(w, r)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				west.set(api.Asleep)
				panic(http.ErrAbortHandler)
			}
			f.known(t, chat.Name)
			if status, body := f.askAt(t, path, "chat"); status != http.StatusOK || body != `{"from":"west"}` {
				t.Errorf("%d %s", status, body)
			}
			if n := tries.Load(); n != 2 {
				t.Errorf("%d tries, want 2", n)
			}
		})
	}
}

// TestClusterIsLost: a request for a function that only a lost cluster has gets a 503 with a time to retry, its
// running stream ends, and the function is served again once the cluster is back.
func TestClusterIsLost(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/*"))
	w := newWire(t, f.at)
	west := newCluster(t, "west", "w", pool, chat, w.at)
	begun := make(chan struct{})
	var back atomic.Bool
	answer := west.answer
	west.answer = func(rw http.ResponseWriter, r *http.Request) {
		if back.Load() {
			answer(rw, r)
			return
		}
		goOn(rw, r, begun)
	}
	f.known(t, chat.Name)
	west.set(api.Awake)
	f.loses(t, w, begun)
	if code, body := f.ask(t, "nobody-has-it"); code != http.StatusNotFound {
		t.Errorf("what nobody ever had: %d %s", code, body)
	}
	back.Store(true)
	w.refuse.Store(false)
	for code, body := f.ask(t, "chat"); code != http.StatusOK; code, body = f.ask(t, "chat") {
		if code != http.StatusServiceUnavailable {
			t.Fatalf("while it comes again: %d %s", code, body)
		}
	}
	west.stop()
	offering(t, f, pool, "west", "w") // it no longer has any
	for f.activator.Declared(chat.Name) {
		time.Sleep(time.Millisecond) // there is no event to wait for
	}
	if code, body := f.ask(t, "chat"); code != http.StatusNotFound {
		t.Errorf("what the cluster has no more: %d %s", code, body)
	}
}

// TestFrontDoorIsLost: the same where the cluster is at another front door, and that one is lost for good.
func TestFrontDoorIsLost(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	x := newFront(t, server, door.Declaration{Name: "y", TokenHashes: []string{door.HashToken("y")}, Functions: []string{"*/*"}, Front: true})
	y := newFront(t, server, declared("west", "w", "default/chat"))
	w := newWire(t, x.at)
	y.peer(t, &front{at: w.at}, "y", pool)
	west := newCluster(t, "west", "w", pool, chat, y.at)
	begun := make(chan struct{})
	west.answer = func(rw http.ResponseWriter, r *http.Request) { goOn(rw, r, begun) }
	x.known(t, chat.Name)
	west.set(api.Awake)
	x.loses(t, w, begun)
}

// goOn answers with a stream that has begun, and ends with its request.
func goOn(rw http.ResponseWriter, r *http.Request, begun chan struct{}) {
	rw.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(rw, "data: {\"choices\":[]}\n\n")
	_ = http.NewResponseController(rw).Flush()
	close(begun)
	<-r.Context().Done()
}

// loses cuts a wire once a stream over it has begun: the stream ends with an error, and requests are refused.
func (f *front) loses(t *testing.T, w *wire, begun chan struct{}) {
	t.Helper()
	stream := make(chan string, 1)
	go func() { stream <- f.stream(t) }()
	<-begun
	w.refuse.Store(true)
	w.cut()
	if got := <-stream; !strings.Contains(got, `"error"`) || strings.Contains(got, "removed") {
		t.Errorf("the stream ends with %q, want an error", got)
	}
	f.refuses(t)
}

// refuses checks how requests for what a lost cluster has are refused.
func (f *front) refuses(t *testing.T) {
	t.Helper()
	for range 2 { // the first waits for the cluster, the second is refused at once
		resp, err := http.Post(f.server.URL+chatPath, "application/json", strings.NewReader(`{"model":"chat","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(raw), `"code":"unhealthy"`) {
			t.Errorf("%s, Retry-After %q: %s, want a 503 that says when to come again", resp.Status, resp.Header.Get("Retry-After"), raw)
		}
	}
}
