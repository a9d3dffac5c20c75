package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
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
			var doors []string
			for n := range test.clients {
				doors = append(doors, startActivator(t, fmt.Sprint("a", n), endpoint, test.slots))
			}
			counts := askInTurns(t, doors, test.clients)
			flat := slices.Concat(counts...)
			// Shared by activator, the few clients of one would be served six times as often as the many of another.
			if least, most := slices.Min(flat), slices.Max(flat); least < 28 || most > 56 {
				t.Errorf("the clients were served %v, want about 40 times each", counts)
			}
		})
	}
}

// askInTurns has so many clients of each door ask in a closed loop, until there are 40 answers for each. It returns
// how often each client was served.
func askInTurns(t *testing.T, doors []string, clients []int) [][]int64 {
	t.Helper()
	counts := make([][]int64, len(clients))
	var enough atomic.Bool
	var total atomic.Int64
	var all sync.WaitGroup
	for n, of := range clients {
		counts[n] = make([]int64, of)
		for c := range of {
			all.Go(func() {
				for !enough.Load() {
					if !askAs(t, doors[n], fmt.Sprintf("client-%d-%d", n, c)) {
						enough.Store(true)
						return
					}
					counts[n][c]++
					if total.Add(1) >= int64(40*sum(clients)) {
						enough.Store(true)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%v", counts)
	return counts
}

// TestDoorsShareSlots: the slots of a cluster are shared fairly between the clients of two front doors of one operator,
// however many each has. A front door with many clients gets no more than the clients of the cluster itself.
func TestDoorsShareSlots(t *testing.T) {
	t.Parallel()
	trust := []string{"--trusted-peers", "127.0.0.0/8"}
	x, y := newNamedDoor(t, "x", slices.Clone(trust), "desk"), newNamedDoor(t, "y", slices.Clone(trust), "desk")
	dir := t.TempDir()
	token, authority, manifest := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "m.yaml")
	var both []byte
	for _, door := range []*frontDoor{x, y} {
		text, err := os.ReadFile(door.certificate)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, text...)
	}
	for path, text := range map[string][]byte{token: []byte("desk\n"), authority: both, manifest: []byte(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: m}
spec: {template: {spec: {containerConcurrency: 4, containers: [{image: a, command: [fakeruntime], args: [-port, $(PORT), -model, m]}]}}}
`)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	joined := append(trust, "-f", manifest, "--join", x.at, "--join", y.at, "--cluster", "desk", "--cluster-token-file", token, "--front-ca", authority)
	desk := newServer(t, joined...)
	for _, door := range []*frontDoor{x, y} {
		if err := retry(func() error { // until the cluster has come there is no such model
			resp, err := http.Get(door.server.url + "/v1/models/m")
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !askAs(t, door.server.url, "first") {
			t.FailNow()
		}
	}
	t.Run("two doors", func(t *testing.T) {
		counts := askInTurns(t, []string{x.server.url, y.server.url}, []int{24, 2})
		if least := slices.Min(slices.Concat(counts...)); least < 33 {
			t.Errorf("the clients were served %v, want about 40 times each", counts)
		}
	})
	t.Run("a door and the cluster", func(t *testing.T) {
		counts := askInTurns(t, []string{x.server.url, desk.server.url}, []int{32, 8})
		door, direct := sum(counts[0]), sum(counts[1])
		if share := float64(direct) / float64(door+direct); share < 0.4 || share > 0.75 {
			t.Errorf("the cluster's own clients got %.2f, want about their half", share)
		}
	})
	t.Run("the cluster dies", func(t *testing.T) {
		askWhile(t, []string{x.server.url, y.server.url}, func() {
			if err := desk.server.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-desk.server.ended
			if err := desk.start(joined...); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("a door dies", func(t *testing.T) {
		died := make(chan struct{})
		go func() { // its requests are lost with it, and only they
			defer close(died)
			for range 16 {
				go func() {
					if resp, err := http.DefaultClient.Do(request(t, x.server.url, "lost", "delay=200ms")); err == nil {
						resp.Body.Close()
					}
				}()
			}
		}()
		<-died
		askWhile(t, []string{y.server.url, desk.server.url}, func() {
			if err := x.server.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-x.server.ended
		})
		if err := retry(func() error { return desk.counts("m", 0, 0) }); err != nil { // what it had sent has ended, and nothing of it waits
			t.Error(err)
		}
	})
}

// askWhile has eight clients of each door ask ten times, and calls disturb in the meantime: all are answered.
func askWhile(t *testing.T, doors []string, disturb func()) {
	t.Helper()
	var all sync.WaitGroup
	asked := make(chan struct{}, 160)
	for _, door := range doors {
		for c := range 8 {
			all.Go(func() {
				for range 10 {
					askAs(t, door, fmt.Sprint("client-", c))
					asked <- struct{}{}
				}
			})
		}
	}
	for range 40 {
		<-asked
	}
	disturb()
	all.Wait()
}

func sum[T int | int64](of []T) (n T) {
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
	resp, err := http.DefaultClient.Do(request(t, door, client, "delay=10ms"))
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

// request returns a request of a client, with a fault of the runtime.
func request(t *testing.T, door, client, fault string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, door+"/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(control.HeaderTenant, client)
	req.Header.Set("X-Fault", fault)
	return req
}
