package activator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// wakerFunc is a function as a waker.
type wakerFunc func(ctx context.Context) (api.InstanceStatus, error)

func (f wakerFunc) Wake(ctx context.Context, _ api.Endpoint, _ api.Grant) (api.InstanceStatus, error) {
	return f(ctx)
}

// transportFunc is a function as a transport.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLifeOfAHeldStream follows one request in virtual time: a wake of 7 s, then 300 ms to the first token.
func TestLifeOfAHeldStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var demands []string
		emit := api.EmitterFunc(func(e api.Event) {
			if e.Type != api.EventDemand {
				return
			}
			var d api.Demand
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Error(err)
			}
			demands = append(demands, time.Since(start).String()+" "+strings.Join([]string{
				"waiting", string(rune('0' + d.Waiting)), "running", string(rune('0' + d.Running)), "waking", string(d.Waking), "age", d.OldestAge.String()}, " "))
		})
		asleep := api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Asleep, Level: api.Level1, Seq: 1, Endpoint: "unix:/s", Concurrency: 1, WakeTime: 8 * time.Second}
		wakes := wakerFunc(func(context.Context) (api.InstanceStatus, error) {
			time.Sleep(7 * time.Second)
			st := asleep
			st.State, st.Level, st.Seq = api.Awake, api.LevelAwake, 2
			return st, nil
		})
		const events = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			time.Sleep(300 * time.Millisecond)
			return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(events))}, nil
		})
		a, err := New(Config{Name: "one"}, Deps{Emitter: emit, Waker: wakes, Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m"})
		a.ObserveInstance(asleep)
		a.Grant(api.Grant{Instance: "m-0001", Function: "default/m", Epoch: 1, Expires: start.Add(time.Hour)})

		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true}`)))
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}

		want := ": rouse stage=waking waited=1.0s expected=7.0s\n\n" +
			": rouse stage=waking waited=6.0s expected=2.0s\n\n" +
			": server-timing hold;dur=7000, wake;dur=7000, queue;dur=0, ttft;dur=300\n\n" + events
		if diff := cmp.Diff(want, w.Body.String()); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		wantDemands := []string{
			"5ms waiting 1 running 0 waking m-0001 age 5ms",
			"1.005s waiting 1 running 0 waking m-0001 age 1.005s",
			"2.005s waiting 1 running 0 waking m-0001 age 2.005s",
			"3.005s waiting 1 running 0 waking m-0001 age 3.005s",
			"4.005s waiting 1 running 0 waking m-0001 age 4.005s",
			"5.005s waiting 1 running 0 waking m-0001 age 5.005s",
			"6.005s waiting 1 running 0 waking m-0001 age 6.005s",
		}
		if diff := cmp.Diff(wantDemands, demands[:min(len(demands), 7)]); diff != "" {
			t.Errorf("demands (-want +got):\n%s", diff)
		}
		if last := demands[len(demands)-1]; last != "7.305s waiting 0 running 0 waking  age 0s" {
			t.Errorf("last demand: got %s", last)
		}
	})
}

// TestQueueIsNotWake: an instance is awake and full, so the whole wait counts as queue.
func TestQueueIsNotWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			time.Sleep(time.Second)
			return &http.Response{StatusCode: 200, ContentLength: 2, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})
		a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m"})
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
		timings := make(chan string, 3) // one for each request
		for range 3 {
			go func() {
				w := httptest.NewRecorder()
				a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m"}`)))
				timings <- w.Header().Get("Server-Timing")
			}()
			synctest.Wait()
		}
		for _, want := range []string{
			"hold;dur=0, wake;dur=0, queue;dur=0, ttft;dur=1000",
			"hold;dur=1000, wake;dur=0, queue;dur=1000, ttft;dur=1000",
			"hold;dur=2000, wake;dur=0, queue;dur=2000, ttft;dur=1000",
		} {
			if got := <-timings; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = a.Run(ctx)
	})
}

// TestAWakeThatHasToLoad: if a sleeping instance has no process, its wake may take as long as a start.
func TestAWakeThatHasToLoad(t *testing.T) {
	for _, c := range []struct {
		what   string
		pid    int
		wakes  time.Duration
		served bool
	}{
		{"a process that wakes in time", 7, 50 * time.Second, true},
		{"a process that takes longer", 7, 2 * time.Minute, false},
		{"no process", 0, 2 * time.Minute, true},
		{"no process, and longer than a start may take", 0, 11 * time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asleep := api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Asleep, Level: api.Level2, PID: c.pid, Seq: 1, Endpoint: "unix:/s", Concurrency: 1}
			began, calls := time.Now(), 0
			waker := wakerFunc(func(ctx context.Context) (api.InstanceStatus, error) {
				calls++
				select {
				case <-time.After(c.wakes):
				case <-ctx.Done():
					return api.InstanceStatus{}, context.Cause(ctx)
				}
				awake := asleep
				awake.State, awake.Level, awake.PID, awake.Seq = api.Awake, 0, 8, 2
				return awake, nil
			})
			transport := transportFunc(func(r *http.Request) (*http.Response, error) {
				_ = r.Body.Close()
				answer := &http.Response{StatusCode: 200, ContentLength: 2, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}
				if r.Header.Get(control.HeaderWait) != "" { // it sleeps for longer than it holds a request
					select {
					case <-time.After(control.MostWait):
						answer.StatusCode = http.StatusServiceUnavailable
						answer.Header.Set(control.HeaderRefused, api.CodeAsleep)
					case <-r.Context().Done():
						return nil, context.Cause(r.Context())
					}
				}
				return answer, nil
			})
			a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: waker, Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			a.PutFunction(api.Function{Name: "default/m", Hold: api.Hold{Timeout: time.Hour}})
			a.ObserveInstance(asleep)
			a.Grant(api.Grant{Instance: "m-0001", Function: "default/m", Epoch: 1, Expires: began.Add(time.Hour)})
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m"}`)))
			if served := w.Code == 200; served != c.served || served && calls != 1 {
				t.Errorf("%s: status %d after %s, %d calls; want served %t", c.what, w.Code, time.Since(began), calls, c.served)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = a.Run(ctx)
		})
	}
}

// TestMemoryOfAllBodies: a body is held; another of the same client would exceed its share, and a third, of another
// client, the total.
func TestMemoryOfAllBodies(t *testing.T) {
	b := startBench(t, func(c *Config) { c.Bodies.MaxBody, c.Bodies.Memory = 512<<10, 1400<<10 })
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	ask := func(client string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","x":"`+strings.Repeat("x", 500_000)+`"}`))
		r.RemoteAddr = client
		w := httptest.NewRecorder()
		b.a.Handler().ServeHTTP(w, r)
		return w
	}
	held := make(chan int)
	for n, client := range []string{"192.0.2.1:1", "192.0.2.2:1"} {
		go func() { held <- ask(client).Code }()
		b.eventually("it is held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == n+1 })
	}
	for client, want := range map[string]int{"192.0.2.1:2": http.StatusTooManyRequests, "192.0.2.3:1": http.StatusServiceUnavailable} {
		if w := ask(client); w.Code != want || w.Header().Get("Retry-After") == "" || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: got %d %v %s, want %d", client, w.Code, w.Header(), w.Body, want)
		}
	}
	b.a.ObserveInstance(i.set(api.Awake))
	for range 2 {
		if status := <-held; status != 200 {
			t.Errorf("held: got %d", status)
		}
	}
	if n := b.a.door.Memory().Used(); n != 0 {
		t.Errorf("%d bytes of bodies are counted that are gone", n)
	}
}
