package picker_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// gateway sends a request to one of the allowed endpoints, each ip:port or an ip with all its ports, as the picker
// chooses; nil: all.
type gateway interface {
	post(allowed []string, body string) result
}

func (b *byHand) post(allowed []string, body string) result {
	one := *b
	if allowed != nil {
		one.subset = []any{}
		for _, a := range allowed {
			one.subset = append(one.subset, a)
		}
	}
	return one.ask(body)
}

// TestConformance runs the cases of the extension's conformance suite (v1.6.0, conformance/tests) that depend on the
// endpoint picker, under the same names. A fake gateway sends its messages; TestEnvoy uses Envoy.
func TestConformance(t *testing.T) {
	for name, g := range map[string]byHand{
		"whole":                    {piece: 1 << 20},
		"in pieces":                {piece: 7},
		"byte by byte":             {piece: 1},
		"with trailers":            {piece: 16, trailers: true},
		"whole, and with trailers": {piece: 1 << 20, trailers: true},
	} {
		t.Run(name, func(t *testing.T) {
			conformance(t, func(t *testing.T, b *bench, _ []*instance, h2c bool) gateway {
				g := g
				g.bench = b
				b.t = t
				if h2c {
					protocols := &http.Protocols{}
					protocols.SetUnencryptedHTTP2(true)
					g.client.Transport = &http.Transport{Protocols: protocols}
				}
				return &g
			})
		})
	}
}

// pods starts instances at several addresses, each with so many ports.
func pods(b *bench, ports int) (all []*instance) {
	for pod := range 3 {
		for port := range ports {
			all = append(all, b.instanceAt(fmt.Sprintf("127.0.0.%d", 2+pod), fmt.Sprintf("pod-%d-%d", pod, port), api.Awake))
		}
	}
	return all
}

func (f *instance) ip() string {
	ip, _, _ := net.SplitHostPort(f.host())
	return ip
}

// confined sends requests, ten at once, and fails if one is served by an instance that is not allowed.
func confined(t *testing.T, g gateway, all []*instance, allowed []string) {
	t.Helper()
	const n = 40
	before := make([]int32, len(all))
	for i, f := range all {
		before[i] = f.served.Load()
	}
	var clients sync.WaitGroup
	var next atomic.Int32
	for range 10 {
		clients.Go(func() {
			for next.Add(1) <= n {
				if r := g.post(allowed, chat); r.status != http.StatusOK || !strings.Contains(r.body, "hello") {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
	clients.Wait()
	served := int32(0)
	for i, f := range all {
		got := f.served.Load() - before[i]
		served += got
		if got != 0 && !slices.Contains(allowed, f.host()) && !slices.Contains(allowed, f.ip()) {
			t.Errorf("%s, which is not allowed, got %d requests", f.status.Instance, got)
		}
	}
	if served != n {
		t.Errorf("%d requests were served, want %d", served, n)
	}
}

// conformance runs the cases through a gateway with these instances.
func conformance(t *testing.T, through func(t *testing.T, b *bench, all []*instance, h2c bool) gateway) {
	t.Run("GatewayFollowingEPPRouting", func(t *testing.T) {
		b := start(t, nil)
		all := pods(b, 1)
		g := through(t, b, all, false)
		for name, allowed := range map[string][]string{
			"should route traffic to a single designated pod": {all[2].ip()},
			"should route traffic to two designated pods":     {all[0].ip(), all[1].ip()},
			"should route traffic to all available pods":      {all[0].ip(), all[1].ip(), all[2].ip()},
		} {
			t.Run(name, func(t *testing.T) { confined(t, g, all, allowed) })
		}
		b.eventually("no slot is taken", b.idle)
	})
	t.Run("GatewayFollowingEPPRoutingWithDataParallelism", func(t *testing.T) {
		b := start(t, nil)
		all := pods(b, 3)
		g := through(t, b, all, false)
		for name, allowed := range map[string][]string{
			"DP routes only to one designated pod (any rank)":               {all[3].ip()},
			"DP routes only to two designated pods; one has a fixed rank":   {all[0].ip(), all[7].host()},
			"DP routes to all pods; one pod restricted to two of its ranks": {all[0].ip(), all[3].host(), all[5].host(), all[6].ip()},
		} {
			t.Run(name, func(t *testing.T) { confined(t, g, all, allowed) })
		}
		b.eventually("no slot is taken", b.idle)
	})
	t.Run("GatewayDestinationEndpointServed", func(t *testing.T) {
		b := start(t, nil)
		all := pods(b, 1)
		g := through(t, b, all, false)
		for _, f := range all {
			if r := g.post([]string{f.ip()}, chat); r.header["x-rouse-instance"] != string(f.status.Instance) {
				t.Errorf("served by %s, got %+v", f.status.Instance, r)
			}
		}
		t.Run("Fallback", func(t *testing.T) { fallback(t, b, g, all) })
		b.eventually("no slot is taken", b.idle)
	})
	for name, h2c := range map[string]bool{"explicit cleartext HTTP/2 appProtocol": true, "explicit HTTP/1.1 appProtocol": false} {
		t.Run("InferencePoolAppProtocol/"+name, func(t *testing.T) {
			b := start(t, nil)
			all := pods(b, 1)
			g := through(t, b, all, h2c)
			for _, f := range all {
				r := g.post([]string{f.host()}, chat)
				if r.status != http.StatusOK || r.header["x-rouse-instance"] != string(f.status.Instance) {
					t.Errorf("got %+v", r)
				}
				if major := f.seen[0].ProtoMajor; (major == 2) != h2c {
					t.Errorf("the request came by HTTP/%d", major)
				}
			}
		})
	}
	t.Run("EndpointSubset", func(t *testing.T) {
		b := start(t, nil)
		all := pods(b, 1)
		g := through(t, b, all, false)
		for name, allowed := range map[string][]string{"a stranger": {"10.1.2.3:80"}, "a port that no endpoint has": {all[0].ip() + ":1"}} {
			if r := g.post(allowed, chat); r.status != http.StatusServiceUnavailable || !strings.HasPrefix(r.body, `{"error":{`) {
				t.Errorf("%s: got %+v", name, r)
			}
		}
		if r := g.post(nil, chat); r.status != http.StatusOK {
			t.Errorf("no list: got %+v", r)
		}
	})
	t.Run("HoldAtZero", func(t *testing.T) {
		b := start(t, nil)
		f := b.instance("one", api.Asleep)
		g := through(t, b, []*instance{f}, false)
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				if r := g.post(nil, chat); r.status != http.StatusOK || r.header["x-rouse-instance"] != "one" {
					t.Errorf("got %+v", r)
				}
			})
		}
		b.eventually("all wait", func() bool { st, _ := b.a.Stats(b.name); return st.Waiting == 4 })
		b.grant(f)
		clients.Wait()
		b.eventually("no slot is taken", b.idle)
	})
}

// fallback sends all conversations to an instance that then disappears unreported. Each request is still served, by a
// reported instance, which keeps the conversation and the slot.
func fallback(t *testing.T, b *bench, g gateway, all []*instance) {
	body := `{"model":"tiny","session_id":"s","messages":[{"role":"user","content":"` + strings.Repeat("a long conversation ", 200) + `"}]}`
	r := g.post(nil, body)
	at := slices.IndexFunc(all, func(f *instance) bool { return string(f.status.Instance) == r.header["x-rouse-instance"] })
	if at < 0 {
		t.Fatalf("got %+v", r)
	}
	all[at].close()
	first := g.post(nil, body)
	by := first.header["x-rouse-instance"]
	if first.status != http.StatusOK || by == r.header["x-rouse-instance"] || by == "" {
		t.Fatalf("got %+v", first)
	}
	b.a.ObserveInstance(all[at].set(api.Awake)) // it is no longer avoided, but its conversation is elsewhere
	if next := g.post(nil, body); next.status != http.StatusOK || next.header["x-rouse-instance"] != by {
		t.Errorf("the next request went to %q, want %q: %+v", next.header["x-rouse-instance"], by, next)
	}
}
