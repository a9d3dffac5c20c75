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

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
)

// gatewayBench trusts 192.0.2.9, and has two objectives. By default the function has one slot and sleeps.
func gatewayBench(t *testing.T, declare func(*api.Function), declared ...apikey.Key) (*bench, *fakeInstance) {
	t.Helper()
	s := keys.NewStore(nil)
	for i := range declared {
		declared[i].Hash = apikey.Hash("k-" + declared[i].Name)
	}
	s.Load(&apikey.File{Keys: declared, Objectives: []apikey.Objective{{Name: "batch", Priority: -2}, {Name: "premium", Priority: 3}}})
	b := startBench(t, nil, func(d *Deps) {
		d.Keys, d.Peers = s, &peer.Addresses{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32")}}
	})
	slots := 1
	name := b.function("m", func(f *api.Function) {
		f.Concurrency = slots
		if declare != nil {
			declare(f)
		}
		slots = f.Concurrency
	})
	i := startFake(t, name, "m-0001", slots)
	i.report = b.a.ObserveInstance
	b.a.ObserveInstance(i.set(api.Asleep))
	return b, i
}

// TestGatewaysHeaders: a trusted gateway sets its requests' urgency and clients with the usual headers.
func TestGatewaysHeaders(t *testing.T) {
	b, i := gatewayBench(t, nil)
	order := make(chan string, 8)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		order <- r.Header.Get("X-Who") + " " + r.Header.Get("X-Rouse-Tenant")
		answerOnce(w, r)
	}
	var all sync.WaitGroup
	for n, header := range [][]string{
		{"X-Who", "usual", "X-Llm-D-Inference-Fairness-Id", "acme"},
		{"X-Who", "batch", "X-Llm-D-Inference-Objective", "batch", "X-Llm-D-Inference-Fairness-Id", "acme"},
		{"X-Who", "patient", "X-Gateway-Inference-Fairness-Id", "zeta", "X-Llm-D-Slo-Ttft-Ms", "60000"},
		{"X-Who", "hurried", "X-Gateway-Inference-Fairness-Id", "zeta", "X-Slo-Ttft-Ms", "500.5", "X-Llm-D-Slo-Tpot-Ms", "20"},
		{"X-Who", "premium", "X-Gateway-Inference-Objective", "premium", "X-Rouse-Tenant", "acme"},
	} {
		all.Go(func() {
			if w := b.from("192.0.2.9", chatPath, `{"model":"m"}`, header...); w.Code != http.StatusOK {
				t.Errorf("%v: %d %s", header, w.Code, w.Body)
			}
		})
		b.eventually("it waits", func() bool { s, _ := b.a.Stats("default/m"); return s.Waiting == n+1 })
	}
	b.a.ObserveInstance(i.set(api.Awake))
	all.Wait()
	var got []string
	for range 5 {
		got = append(got, <-order)
	}
	want := []string{"premium tenant acme", "usual tenant acme", "hurried tenant zeta", "patient tenant zeta", "batch tenant acme"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestGatewaysHeadersOfOthers(t *testing.T) {
	b, i := gatewayBench(t, nil, apikey.Key{Name: "low"}, apikey.Key{Name: "high", Rights: apikey.Rights{MaxPriority: 3}})
	b.a.ObserveInstance(i.set(api.Awake))
	for _, tc := range []struct {
		name, key string
		header    []string
		want      int
		says      string
	}{
		{"an objective above what the key may claim", "low", []string{"X-Llm-D-Inference-Objective", "premium"}, 403, "priority"},
		{"one that it may", "high", []string{"X-Llm-D-Inference-Objective", "premium"}, 200, ""},
		{"one below", "low", []string{"X-Llm-D-Inference-Objective", "batch"}, 200, ""},
		{"one that nobody declared", "low", []string{"X-Llm-D-Inference-Objective", "gold"}, 400, "no objective"},
		{"another's tenant", "low", []string{"X-Llm-D-Inference-Fairness-Id", "acme"}, 200, ""},
		{"no time", "low", []string{"X-Llm-D-Slo-Ttft-Ms", "soon"}, 400, "X-Llm-D-Slo-Ttft-Ms"},
		{"a negative time", "low", []string{"X-Llm-D-Slo-Tpot-Ms", "-1"}, 400, "X-Llm-D-Slo-Tpot-Ms"},
		{"not a number", "low", []string{"X-Llm-D-Slo-Ttft-Ms", "NaN"}, 400, "X-Llm-D-Slo-Ttft-Ms"},
	} {
		w := b.from("203.0.113.1", chatPath, `{"model":"m"}`, append(tc.header, "Authorization", "Bearer k-"+tc.key)...)
		if w.Code != tc.want || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s: %d %s, want %d with %q", tc.name, w.Code, w.Body, tc.want, tc.says)
		}
	}
}

// TestWhyARequestWasDropped: gateways read the reason in a header.
func TestWhyARequestWasDropped(t *testing.T) {
	b, _ := gatewayBench(t, func(f *api.Function) { f.Hold.Capacity = 1 })
	held := make(chan *httptest.ResponseRecorder, 1)
	go func() { held <- b.from("192.0.2.9", chatPath, `{"model":"m"}`) }()
	b.eventually("it waits", func() bool { s, _ := b.a.Stats("default/m"); return s.Waiting == 1 })
	if w := b.from("192.0.2.9", chatPath, `{"model":"m"}`); w.Code != 429 || w.Header().Get("X-Llm-D-Request-Dropped-Reason") != "rejected-saturated" {
		t.Errorf("a full queue: %d %v", w.Code, w.Header())
	}
	if w := b.from("192.0.2.9", chatPath, `{"model":"x"}`); w.Code != 404 || w.Header().Get("X-Llm-D-Request-Dropped-Reason") != "" {
		t.Errorf("an unknown model: %d %v", w.Code, w.Header())
	}
	b.a.RemoveFunction("default/m")
	<-held
}

// TestEviction: a running sheddable request is ended for one that is not sheddable, if the function allows it: one
// for each, the least valuable. Its client can recognize that, and send it again.
func TestEviction(t *testing.T) {
	for _, on := range []bool{false, true} {
		b, i := gatewayBench(t, func(f *api.Function) { f.Hold.EvictSheddable, f.Concurrency = on, 2 })
		b.a.ObserveInstance(i.set(api.Awake))
		begun, finish := make(chan struct{}, 8), make(chan struct{})
		i.chat = func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			switch {
			case strings.Contains(string(raw), "stream"):
				streamEvents(w, "data: "+`{"choices":[{"delta":{"content":"a"}}]}`+"\n\n")
				begun <- struct{}{}
			case strings.Contains(string(raw), "flex"):
				begun <- struct{}{}
			default:
				answerOnce(w, r)
				return
			}
			select {
			case <-r.Context().Done():
			case <-finish:
			}
		}
		plain, stream, usual := make(chan *httptest.ResponseRecorder, 1), make(chan *httptest.ResponseRecorder, 1), make(chan int, 1)
		go func() { plain <- b.from("192.0.2.9", chatPath, `{"model":"m","service_tier":"flex"}`) }()
		<-begun
		go func() {
			stream <- b.from("192.0.2.9", chatPath, `{"model":"m","stream":true}`, "X-Llm-D-Inference-Objective", "batch")
		}()
		<-begun
		go func() { usual <- b.from("192.0.2.9", chatPath, `{"model":"m"}`).Code }()
		if !on {
			b.eventually("it waits", func() bool { s, _ := b.a.Stats("default/m"); return s.Waiting == 1 })
			close(finish)
			if w := <-plain; w.Code != 200 {
				t.Errorf("not switched on: %d %s", w.Code, w.Body)
			}
			<-stream
			<-usual
			continue
		}
		if got := <-usual; got != 200 {
			t.Errorf("the request that is worth more: %d", got)
		}
		w := <-stream // the objective is worth less than the tier
		if body := w.Body.String(); !strings.Contains(body, `"code":"evicted"`) || strings.Contains(body, "[DONE]") {
			t.Errorf("the stream that was ended: %s, want an error event", body)
		}
		if s, _ := b.a.Stats("default/m"); s.Running != 1 {
			t.Errorf("%d requests run, want the other one", s.Running)
		}
		go func() { usual <- b.from("192.0.2.9", chatPath, `{"model":"m","user":"stream"}`).Code }()
		<-begun
		go func() { usual <- b.from("192.0.2.9", chatPath, `{"model":"m"}`).Code }()
		if w := <-plain; w.Code != 429 || w.Header().Get("Retry-After") == "" || w.Header().Get("X-Llm-D-Request-Dropped-Reason") != "evicted-priority" || !strings.Contains(w.Body.String(), `"code":"evicted"`) {
			t.Errorf("the request that was ended: %d %s %v", w.Code, w.Body, w.Header())
		}
		<-usual
		close(finish)
		<-usual
	}
}
