package activator

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// slowBody is a stream whose first event comes at once and whose end comes later.
type slowBody struct {
	parts []string
	pause time.Duration
	begun bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, io.EOF
	}
	if b.begun {
		time.Sleep(b.pause)
	}
	b.begun = true
	n := copy(p, b.parts[0])
	b.parts = b.parts[1:]
	return n, nil
}

func (b *slowBody) Close() error { return nil }

// firstEvent records when the first event comes.
type firstEvent struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (w *firstEvent) Write(p []byte) (int, error) {
	if w.at.IsZero() && strings.HasPrefix(string(p), "data: {") {
		w.at = time.Now()
	}
	return w.ResponseRecorder.Write(p)
}

// TestHonestFirstToken: in virtual time a client sends a request every second for a minute, alone and beside a client
// that sends a hundred times as much and began earlier. An instance of 64 slots gives its first token after 400 ms,
// and ends a second or three later. The honest client's first token comes at most 1.5 times as late, in 95 of 100
// requests, and none of them is refused.
func TestHonestFirstToken(t *testing.T) {
	const slots, toFirst = 64, 400 * time.Millisecond
	p95 := func(greedy bool) (late time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards r
			r := rand.New(rand.NewPCG(1, 1))
			pause := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
			}
			transport := transportFunc(func(req *http.Request) (*http.Response, error) {
				_ = req.Body.Close()
				time.Sleep(toFirst)
				body := &slowBody{pause: pause(), parts: []string{"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
					"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":100}}\n\ndata: [DONE]\n\n"}}
				return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
			})
			a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			a.PutFunction(api.Function{Name: "default/m", Concurrency: slots, Hold: api.Hold{Capacity: 400}})
			a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: slots})
			var all sync.WaitGroup
			ask := func(address string) (first time.Duration) {
				req := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true,"max_tokens":100,"messages":[]}`))
				req.RemoteAddr = address + ":1"
				w, begun := &firstEvent{ResponseRecorder: httptest.NewRecorder()}, time.Now()
				a.Handler().ServeHTTP(w, req)
				if w.at.IsZero() {
					return -1
				}
				return w.at.Sub(begun)
			}
			if greedy {
				all.Go(func() {
					for range 90 * 100 {
						all.Go(func() { ask("192.0.2.1") })
						time.Sleep(10 * time.Millisecond)
					}
				})
				time.Sleep(30 * time.Second)
			}
			var firsts []time.Duration
			for range 60 {
				all.Go(func() {
					first := ask("192.0.2.2")
					mu.Lock()
					defer mu.Unlock()
					firsts = append(firsts, first)
				})
				time.Sleep(time.Second)
			}
			all.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := a.Run(ctx); err != nil {
				t.Fatal(err)
			}
			slices.Sort(firsts)
			if len(firsts) != 60 || firsts[0] < toFirst {
				t.Fatalf("%d requests, the fastest first token after %s", len(firsts), firsts[0])
			}
			late = firsts[len(firsts)*95/100]
		})
		return late
	}
	alone, beside := p95(false), p95(true)
	t.Logf("the first token comes after %s alone, %s beside the other", alone, beside)
	if alone != toFirst || 2*beside > 3*alone {
		t.Errorf("beside a client with 100 times the load the first token comes after %s, alone after %s", beside, alone)
	}
}
