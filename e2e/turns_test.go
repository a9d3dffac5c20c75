package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestActivatorsShareSlots: the slots of one instance are shared fairly between the clients of several activators that
// know nothing of each other, however many each has.
func TestActivatorsShareSlots(t *testing.T) {
	for _, test := range []struct {
		slots   int
		clients []int // by activator
	}{{1, []int{3, 3}}, {8, []int{24, 2}}, {4, []int{1, 2, 4, 8, 25}}} {
		t.Run(fmt.Sprintf("%d slots for %v", test.slots, test.clients), func(t *testing.T) {
			t.Parallel()
			args := func(*testing.T, string) []string {
				return []string{"--concurrency", fmt.Sprint(test.slots), "--runtime", "command", "--", "fakeruntime", "--port", "$(PORT)", "--model", "m"}
			}
			endpoint := newMeasured(t, measured{args: args}).at
			counts := make([][]int64, len(test.clients))
			var enough atomic.Bool
			var total atomic.Int64
			var all sync.WaitGroup
			for n, clients := range test.clients {
				door := startActivator(t, fmt.Sprint("a", n), endpoint, test.slots)
				counts[n] = make([]int64, clients)
				for c := range clients {
					all.Go(func() {
						for !enough.Load() {
							if !askAs(t, door, fmt.Sprintf("client-%d-%d", n, c)) {
								enough.Store(true)
								return
							}
							counts[n][c]++
							if total.Add(1) >= int64(40*sum(test.clients)) {
								enough.Store(true)
							}
						}
					})
				}
			}
			all.Wait()
			flat := slices.Concat(counts...)
			if least, most := slices.Min(flat), slices.Max(flat); least < 33 || most > 47 {
				t.Errorf("the clients were served %v, want about 40 times each", counts)
			}
			t.Logf("%v", counts)
		})
	}
}

func sum(of []int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

// silent stands for other activators that are told nothing.
type silent struct{}

func (silent) Served(control.ClientUse) {}

// startActivator starts an activator that knows one awake instance, and returns its address.
func startActivator(t *testing.T, name string, endpoint api.Endpoint, slots int) string {
	t.Helper()
	transport := api.NewTransport(64)
	a, err := activator.New(activator.Config{Name: name}, activator.Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: control.New(transport, nil), Transport: transport, Others: silent{},
		Peers: &peer.Addresses{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = a.Run(ctx) })
	server := httptest.NewServer(a.Handler())
	t.Cleanup(func() { server.Close(); cancel(); run.Wait(); transport.CloseIdleConnections() })
	a.PutFunction(api.Function{Name: "default/m", Concurrency: slots})
	a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, PID: 1, Endpoint: endpoint, Concurrency: slots, Since: time.Now()})
	return server.URL
}

// askAs sends a request of a client, and reports whether it was answered.
func askAs(t *testing.T, door, client string) bool {
	req, err := http.NewRequest(http.MethodPost, door+"/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Error(err)
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(control.HeaderTenant, client)
	req.Header.Set("X-Fault", "delay=10ms")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return false
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %s", client, resp.Status, text)
		return false
	}
	return true
}
