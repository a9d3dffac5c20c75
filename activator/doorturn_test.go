package activator

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// doorWriter records the interim answers that a front door gets.
type doorWriter struct {
	*httptest.ResponseRecorder
	told []string
}

func (w *doorWriter) WriteHeader(status int) {
	if status < http.StatusOK {
		w.told = append(w.told, w.Header().Get(control.HeaderQueue))
		return
	}
	w.ResponseRecorder.WriteHeader(status)
}

// TestDoorsRequestWaits: a front door's request that brings its place waits for a slot of the cluster, for as long as
// the front door says. One without a place is refused at once, and one whose front door is gone leaves.
func TestDoorsRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get(control.HeaderQueue) != "" {
				t.Errorf("the instance is told the place %q, although no other activator is there", r.Header.Get(control.HeaderQueue))
			}
			_ = r.Body.Close()
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return &http.Response{StatusCode: 200, ContentLength: 2, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		})
		a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m", Hold: api.Hold{Timeout: time.Minute, Capacity: 10, MaxBytes: api.MiB}})
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
		ended := make(chan *doorWriter, 1)
		ask := func(ctx context.Context, turn control.Turn) {
			go func() {
				w := &doorWriter{ResponseRecorder: httptest.NewRecorder()}
				defer func() {
					if v := recover(); v != nil && v != http.ErrAbortHandler {
						panic(v)
					}
					ended <- w
				}()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true}`))
				a.ServeAtOnce(w, peer.As(r, peer.Peer{Client: "tenant a", Turn: turn}), "default/m")
			}()
			synctest.Wait()
		}
		expect := func(status int, refused string, told ...string) {
			t.Helper()
			if w := <-ended; w.Code != status || w.Header().Get(control.HeaderRefused) != refused || !slices.Equal(w.told, told) || len(told) > 1 && w.Header().Get(control.HeaderQueue) != told[len(told)-1] {
				t.Errorf("answered %d %v, told %v; want %d, refused %q, told %v", w.Code, w.Header(), w.told, status, refused, told)
			}
		}
		turn := control.Turn{Source: 9, Client: 5, Most: 5 * time.Second}
		ask(t.Context(), turn) // it gets the slot
		ask(t.Context(), control.Turn{Source: 9})
		expect(http.StatusServiceUnavailable, api.CodeBusy)
		ask(t.Context(), turn)
		expect(http.StatusServiceUnavailable, api.CodeBusy, "0", "5001")
		long := turn
		long.Most = time.Hour
		ask(t.Context(), long)
		expect(http.StatusServiceUnavailable, api.CodeBusy, "0", "15001")
		ctx, leave := context.WithCancel(t.Context())
		ask(ctx, turn)
		leave()
		<-ended
		if st, _ := a.Stats("default/m"); st.Waiting != 0 || st.Running != 1 {
			t.Errorf("%d wait and %d run, want only the first", st.Waiting, st.Running)
		}
		ask(t.Context(), turn)
		time.Sleep(time.Second)
		release <- struct{}{}
		expect(http.StatusOK, "")
		release <- struct{}{}
		expect(http.StatusOK, "", "0", "1001")
		ctx, leave = context.WithCancel(t.Context())
		leave()
		_ = a.Run(ctx)
	})
}

// TestDoorsRequestFindsAFullQueue: where no more requests may wait in the cluster, the front door goes on holding the
// request.
func TestDoorsRequestFindsAFullQueue(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Hold.Capacity = 1 })
	i := b.instance(name, "m-0001", api.Awake)
	begun, hold := make(chan struct{}, 4), make(chan struct{})
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-hold
		answerOnce(w, r)
	}
	var all sync.WaitGroup
	for range 4 { // its slots
		all.Go(func() { b.post(chatPath, `{"model":"m"}`) })
		<-begun
	}
	all.Go(func() { b.post(chatPath, `{"model":"m"}`) }) // the queue's only place
	for st, _ := b.a.Stats(name); st.Waiting == 0; st, _ = b.a.Stats(name) {
		runtime.Gosched()
	}
	// The front door's client has no entry yet, and displaces no one: the queue is no larger than one share of two.
	w := &doorWriter{ResponseRecorder: httptest.NewRecorder()}
	b.a.ServeAtOnce(w, peer.As(httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m"}`)), peer.Peer{Client: "tenant a", Turn: control.Turn{Source: 9, Client: 5, Most: time.Second}}), "default/m")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get(control.HeaderRefused) != api.CodeHoldFull {
		t.Errorf("answered %d %v, want that the front door holds it", w.Code, w.Header())
	}
	close(hold)
	all.Wait()
}
