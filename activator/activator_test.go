package activator

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
)

func TestWarm(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	const body = `{"model":"m","unknown":{"kept":[1,2]},"messages":[]}`
	resp, got := b.post(chatPath, body, "X-Request-Id", "mine")
	if resp.StatusCode != http.StatusOK || !strings.Contains(got, fmt.Sprintf("%q", body)) {
		t.Fatalf("got %s %s, want 200 with the body as sent", resp.Status, got)
	}
	if id := resp.Header.Values("X-Request-Id"); len(id) != 1 || id[0] != "mine" {
		t.Errorf("x-request-id: got %q, want the client's once", id)
	}
	if timing := resp.Header.Get("Server-Timing"); !strings.HasPrefix(timing, "hold;dur=0, wake;dur=0, queue;dur=0, ttft;dur=") {
		t.Errorf("server-timing: got %q", timing)
	}
	if n := i.served.Load(); n != 1 {
		t.Errorf("served: got %d, want 1", n)
	}
	resp, _ = b.post(chatPath, body, "X-Request-Id", "bad\tid")
	if id := resp.Header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
		t.Errorf("x-request-id: got %q, want a new one", id)
	}
}

func TestManyAtZeroWakeOnce(t *testing.T) {
	const clients = 200
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.before = func() { b.eventually("the first demand", func() bool { return len(b.demands()) > 0 }) }
	b.grant(i, 1)
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			body := fmt.Sprintf(`{"model":"m","n":%d}`, n)
			resp, got := b.post(chatPath, body)
			if resp.StatusCode != http.StatusOK || !strings.Contains(got, fmt.Sprintf("%q", body)) {
				t.Errorf("client %d: got %s %s", n, resp.Status, got)
			}
		})
	}
	all.Wait()
	if wakes, served, most := i.wakes.Load(), i.served.Load(), i.most.Load(); wakes != 1 || served != clients || most > 4 {
		t.Errorf("got %d wakes, %d served, at most %d at once; want 1, %d, 4", wakes, served, most, clients)
	}
	b.eventually("a last level of zero", func() bool {
		d := b.demands()
		return len(d) > 1 && d[len(d)-1].Waiting == 0 && d[len(d)-1].Running == 0
	})
	if first := b.demands()[0]; first.Waiting < 1 || first.Waking != "m-0001" || first.LastRequest.IsZero() {
		t.Errorf("first demand: got %+v, want requests that wait and m-0001 waking", first)
	}
}

// TestWithoutAGrant: without a grant the activator only reports its demand, and leaves the wake to the autoscaler.
func TestWithoutAGrant(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	go func() {
		b.eventually("a demand", func() bool { d := b.demands(); return len(d) > 0 && d[0].Waiting == 1 && d[0].Waking == "" })
		b.a.ObserveInstance(i.set(api.Awake))
	}()
	resp, got := b.post(chatPath, `{"model":"m"}`)
	if resp.StatusCode != http.StatusOK || i.wakes.Load() != 0 {
		t.Errorf("got %s %s and %d wakes, want 200 and none", resp.Status, got, i.wakes.Load())
	}
	timing := resp.Header.Get("Server-Timing")
	var hold, wake, queue, first float64
	if _, err := fmt.Sscanf(timing, "hold;dur=%f, wake;dur=%f, queue;dur=%f, ttft;dur=%f", &hold, &wake, &queue, &first); err != nil || hold <= 0 || wake <= 0 || wake+queue > hold+0.01 {
		t.Errorf("server-timing: got %s (%v), want a hold with a wake in it", timing, err)
	}
}

// TestRefusalPutsBack: the instance fell asleep while the activator thought it awake.
func TestRefusalPutsBack(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	b.grant(i, 1)
	i.set(api.Asleep) // unreported
	resp, got := b.post(chatPath, `{"model":"m"}`)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s %s", resp.Status, got)
	}
	if refused, wakes, served := i.refused.Load(), i.wakes.Load(), i.served.Load(); refused != 1 || wakes != 1 || served != 1 {
		t.Errorf("got %d refusals, %d wakes, %d served; want one of each", refused, wakes, served)
	}
}

func TestAFailedWakeIsTriedAgain(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	i.wakeFails.Store(2)
	b.grant(i, 1)
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusOK || i.wakes.Load() != 3 {
		t.Errorf("got %s %s after %d wakes, want 200 after 3", resp.Status, got, i.wakes.Load())
	}
}

func TestFail(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	go func() {
		b.eventually("a demand", func() bool { return len(b.demands()) > 0 })
		b.a.Fail(name, api.Errorf(503, api.CodeStartFailed, "the model file is missing"))
	}()
	for range 2 { // one held, one new
		resp, got := b.post(chatPath, `{"model":"m"}`)
		if resp.StatusCode != 503 || !strings.Contains(got, "the model file is missing") || !strings.Contains(got, api.CodeStartFailed) {
			t.Errorf("got %s %s", resp.Status, got)
		}
	}
	b.a.ObserveInstance(i.set(api.Awake))
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 200 {
		t.Errorf("awake again: got %s %s", resp.Status, got)
	}
}

func TestFullRoom(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Hold.Capacity = 2; f.Hold.MaxBytes = api.KiB })
	i := b.instance(name, "m-0001", api.Asleep)
	var held sync.WaitGroup
	for range 2 {
		held.Go(func() {
			if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 200 {
				t.Errorf("held: got %s %s", resp.Status, got)
			}
		})
	}
	b.eventually("two held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 2 })
	resp, got := b.post(chatPath, `{"model":"m"}`)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || !strings.Contains(got, api.CodeHoldFull) || !strings.Contains(got, "2 requests wait") {
		t.Errorf("third: got %s, Retry-After %q, %s", resp.Status, resp.Header.Get("Retry-After"), got)
	}
	b.function("m", func(f *api.Function) { f.Hold.Capacity = 5; f.Hold.MaxBytes = api.KiB })
	resp, got = b.post(chatPath, `{"model":"m","x":"`+strings.Repeat("x", 1000)+`"}`)
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(got, "1 KiB may be used") {
		t.Errorf("large: got %s %s", resp.Status, got)
	}
	b.a.ObserveInstance(i.set(api.Awake))
	held.Wait()
}

func TestTimeLimits(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Hold.Timeout = 50 * time.Millisecond })
	i := startFake(t, name, "m-0001", 1)
	i.status.WakeTime = 10 * time.Second
	b.a.ObserveInstance(i.set(api.Asleep))
	for _, tc := range []struct {
		name, timeout string
		status        int
		want          string
	}{
		{"nearer than the expected wake", "", 503, "is expected to take requests in 10s"},
		{"the client's too", "2", 503, "this one may wait 50ms"},
		{"not a time", "soon", 400, "want seconds"},
		{"not above 0", "-1", 400, "want seconds"},
		{"not a number", "NaN", 400, "want seconds"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, got := b.post(chatPath, `{"model":"m"}`, "X-Request-Timeout", tc.timeout)
			if resp.StatusCode != tc.status || !strings.Contains(got, tc.want) {
				t.Errorf("got %s %s, want %d with %s", resp.Status, got, tc.status, tc.want)
			}
		})
	}
	i.mu.Lock()
	i.status.WakeTime = 0
	i.mu.Unlock()
	other := b.function("unknown-wake", func(f *api.Function) { f.Hold.Timeout = 50 * time.Millisecond })
	b.instance(other, "u-0001", api.Asleep)
	if resp, got := b.post(chatPath, `{"model":"unknown-wake"}`); resp.StatusCode != 503 || !strings.Contains(got, queue.CodeHoldTimeout) {
		t.Errorf("held too long: got %s %s", resp.Status, got)
	}
	patient := b.function("patient", func(f *api.Function) { f.Hold.Timeout = time.Minute })
	b.instance(patient, "p-0001", api.Asleep)
	if resp, got := b.post(chatPath, `{"model":"patient"}`, "X-Request-Timeout", "20ms"); resp.StatusCode != 504 || !strings.Contains(got, api.CodeRequestTimeout) {
		t.Errorf("the client's time is up: got %s %s", resp.Status, got)
	}
	limited := b.function("slow", func(f *api.Function) { f.RequestTimeout = 50 * time.Millisecond })
	slow := b.instance(limited, "s-0001", api.Awake)
	cancelled := make(chan struct{}, 2)
	slow.chat = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "stream") {
			streamEvents(w, "data: {}\n\n")
		}
		<-r.Context().Done()
		cancelled <- struct{}{}
	}
	if resp, got := b.post(chatPath, `{"model":"slow"}`); resp.StatusCode != 504 || !strings.Contains(got, "limit of 50ms") {
		t.Errorf("a slow answer: got %s %s", resp.Status, got)
	}
	if resp, got := b.post(chatPath, `{"model":"slow","stream":true}`); resp.StatusCode != 200 || !strings.HasPrefix(got, "data: {}\n\ndata: {\"error\"") || !strings.Contains(got, api.CodeRequestTimeout) {
		t.Errorf("a slow stream: got %s %s", resp.Status, got)
	}
	<-cancelled
	<-cancelled
}

func TestRemoveFunction(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	b.instance(name, "m-0001", api.Asleep)
	removed := make(chan struct{}) // closed when that is over: the client is answered before
	go func() {
		defer close(removed)
		b.eventually("one held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
		b.a.RemoveFunction(name)
	}()
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 404 || !strings.Contains(got, "was removed") {
		t.Errorf("held: got %s %s", resp.Status, got)
	}
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 404 || !strings.Contains(got, api.CodeModelNotFound) {
		t.Errorf("new: got %s %s", resp.Status, got)
	}
	<-removed
	if d := b.demands(); d[len(d)-1].Waiting != 0 {
		t.Errorf("last demand: got %+v, want zero", d[len(d)-1])
	}
}

// TestRetire: a request that comes once a function is redeclared waits for a new instance, though the old one is
// awake.
func TestRetire(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	old := b.instance(name, "m-0001", api.Awake)
	b.instance(name, "m-0002", api.Asleep)
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != 200 {
		t.Fatalf("before: got %s %s", resp.Status, got)
	}
	b.a.Retire(name)
	b.function("m", func(f *api.Function) { f.Runtime.Model = "another" })
	b.a.ObserveInstance(old.set(api.Awake)) // it reports before it hears that it ends
	var fresh *fakeInstance
	started := make(chan struct{}) // closed when fresh is set
	go func() {
		defer close(started)
		b.eventually("one held", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
		fresh = b.instance(name, "m-0003", api.Awake)
	}()
	resp, got := b.post(chatPath, `{"model":"m"}`)
	<-started
	if by := resp.Header.Get(headerInstance); resp.StatusCode != 200 || by != "m-0003" || fresh == nil {
		t.Errorf("after: got %s of %s: %s", resp.Status, by, got)
	}
}
