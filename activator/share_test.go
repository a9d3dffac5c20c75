package activator

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// from sends a request as a client at an address.
func (b *bench) from(address, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.RemoteAddr = address + ":1"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.a.Handler().ServeHTTP(w, r)
	return w
}

// TestOneClientFillsTheRoom: one client has all places. Another comes: it is admitted, and as many requests of the
// first are refused with a time to retry. Then both are answered in turn.
func TestOneClientFillsTheRoom(t *testing.T) {
	const places = 6
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Hold.Capacity, f.Concurrency = places, 1 })
	i := b.instance(name, "m-0001", api.Asleep)
	greedy, honest := make(chan int, 2*places), make(chan int, places)
	waiting := func(n int) {
		b.eventually("they wait", func() bool { s, _ := b.a.Stats(name); return s.Waiting == n })
	}
	for n := range places {
		go func() { greedy <- b.from("192.0.2.1", chatPath, `{"model":"m"}`).Code }()
		waiting(n + 1)
	}
	if w := b.from("192.0.2.1", chatPath, `{"model":"m"}`); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more of the client that has all places: %d %s, want 429", w.Code, w.Body)
	}
	for range places / 2 {
		go func() { honest <- b.from("192.0.2.2", chatPath, `{"model":"m"}`).Code }()
		if status := <-greedy; status != http.StatusTooManyRequests {
			t.Errorf("who has most of the places: %d, want 429", status)
		}
		waiting(places)
	}
	if w := b.from("192.0.2.2", chatPath, `{"model":"m"}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("more than a share: %d, want 429", w.Code)
	}
	b.a.ObserveInstance(i.set(api.Awake))
	for range places / 2 {
		if a, h := <-greedy, <-honest; a != 200 || h != 200 {
			t.Errorf("those who wait get %d and %d", a, h)
		}
	}
}

// TestWhoMaySayHowUrgentItIs: the priority, the tier and the tenant in a request count only from trusted peers; the
// instance is told the tenant.
func TestWhoMaySayHowUrgentItIs(t *testing.T) {
	b := startBench(t, nil)
	b.a.deps.Peers = &peer.Addresses{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32")}}
	name := b.function("m", func(f *api.Function) { f.Concurrency = 1 })
	i := startFake(t, name, "m-0001", 1)
	i.report = b.a.ObserveInstance
	b.a.ObserveInstance(i.set(api.Asleep))
	order := make(chan [3]string, 3)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		order <- [3]string{r.Header.Get("X-Who"), r.Header.Get(control.HeaderTenant), r.Header.Get(control.HeaderTrusted)}
		answerOnce(w, r)
	}
	var all sync.WaitGroup
	for n, c := range []struct{ address, body, who string }{
		{"192.0.2.1", `{"model":"m"}`, "first"},
		{"192.0.2.2", `{"model":"m","priority":-2147483648,"service_tier":"priority"}`, "pushes"},
		{"192.0.2.9", `{"model":"m","service_tier":"priority"}`, "trusted"},
	} {
		all.Go(func() { b.from(c.address, chatPath, c.body, "X-Who", c.who, control.HeaderTenant, "acme") })
		b.eventually("it waits", func() bool { s, _ := b.a.Stats(name); return s.Waiting == n+1 })
	}
	b.a.ObserveInstance(i.set(api.Awake))
	all.Wait()
	for _, want := range [][3]string{{"trusted", "tenant acme", "true"}, {"first", "192.0.2.1", ""}, {"pushes", "192.0.2.2", ""}} {
		if got := <-order; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTurnsByTokens: of two clients with equal requests, one gets long answers. While both wait the other gets
// proportionally more turns.
func TestTurnsByTokens(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Concurrency = 1 })
	i := startFake(t, name, "m-0001", 1)
	i.report = b.a.ObserveInstance
	b.a.ObserveInstance(i.set(api.Asleep))
	order := make(chan string, 8)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		who := r.Header.Get("X-Who")
		order <- who
		tokens := map[string]string{"long": "1000", "short": "200"}[who]
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":`+tokens+`}}`)
	}
	var all sync.WaitGroup
	for n := range 8 {
		who, address := "long", "192.0.2.1"
		if n >= 4 {
			who, address = "short", "192.0.2.2"
		}
		all.Go(func() { b.from(address, chatPath, `{"model":"m"}`, "X-Who", who) })
		b.eventually("it waits", func() bool { s, _ := b.a.Stats(name); return s.Waiting == n+1 })
	}
	b.a.ObserveInstance(i.set(api.Awake))
	all.Wait()
	var got []string
	for range 8 {
		got = append(got, <-order)
	}
	// The first answer of each shows the length of its answers: 1,000 tokens are worth four of 200, and part of a
	// fifth.
	want := []string{"long", "short", "short", "short", "short", "long", "long", "long"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestSheddableGoesFirst: in a full queue, a sheddable request is displaced by one that is not.
func TestSheddableGoesFirst(t *testing.T) {
	b := startBench(t, nil)
	b.a.deps.Peers = &peer.Addresses{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32")}}
	name := b.function("m", func(f *api.Function) { f.Concurrency, f.Hold.Capacity = 1, 1 })
	i := b.instance(name, "m-0001", api.Asleep)
	flex, usual := make(chan *httptest.ResponseRecorder, 1), make(chan int, 1)
	go func() { flex <- b.from("192.0.2.9", chatPath, `{"model":"m","service_tier":"flex"}`) }()
	b.eventually("it waits", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
	go func() { usual <- b.from("192.0.2.1", chatPath, `{"model":"m"}`).Code }()
	if w := <-flex; w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("the sheddable request: %d %s, want a 429 that says when to come back", w.Code, w.Body)
	}
	if w := b.from("192.0.2.9", chatPath, `{"model":"m","service_tier":"flex"}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("another: %d %s, want 429", w.Code, w.Body)
	}
	b.a.ObserveInstance(i.set(api.Awake))
	if got := <-usual; got != http.StatusOK {
		t.Errorf("the other request: %d, want 200", got)
	}
}
