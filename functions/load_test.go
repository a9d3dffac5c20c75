package functions

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// fakeGate has the requests that a test sets.
type fakeGate struct {
	busy chan struct{} // room for one, as in the real one

	mu      sync.Mutex // guards the fields below
	running int
	entered uint64
}

func (g *fakeGate) Busy() <-chan struct{} { return g.busy }

func (g *fakeGate) Running() (int, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.entered
}

// leave ends all requests.
func (g *fakeGate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = 0
}

func (g *fakeGate) enter(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 {
		select {
		case g.busy <- struct{}{}:
		default:
		}
	}
	g.running, g.entered = g.running+n, g.entered+uint64(n)
}

// TestLoadIsReportedWhileRequestsRun: at most once a second, only changes, and once more when it is idle. While nothing runs, nobody is
// asked.
func TestLoadIsReportedWhileRequestsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards asked and got
		asked := 0
		cached, published := int64(0), false
		gate := &fakeGate{busy: make(chan struct{}, 1)}
		m, err := metrics.New(metrics.Config{
			Model: "m", Status: func() api.InstanceStatus { return api.InstanceStatus{State: api.Awake, Concurrency: 8} },
			Signals: func(context.Context) (runtime.Signals, error) {
				running, _ := gate.Running()
				mu.Lock()
				defer mu.Unlock()
				asked++
				return runtime.Signals{Running: float64(running), KVUsage: float64(running) / 8}, nil
			},
			Cached: func() (int64, bool) {
				mu.Lock()
				defer mu.Unlock()
				return cached, published
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []api.Load
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		w := loadWatch{gate: gate, meter: m.Meter(), report: func(l api.Load) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, l)
		}}
		go func() { defer close(ended); w.run(ctx) }()
		expect := func(what string, questions int, want ...api.Load) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, got); diff != "" || asked > questions {
				t.Errorf("%s: asked %d times, want at most %d; reports (-want +got):\n%s", what, asked, questions, diff)
			}
			got, asked = nil, 0
		}
		time.Sleep(time.Hour)
		expect("idle", 0)
		gate.enter(1)
		time.Sleep(300 * time.Millisecond)
		gate.leave()
		time.Sleep(time.Minute)
		expect("a single short request", 1)
		gate.enter(4)
		time.Sleep(5 * time.Second)
		expect("steady", 5, api.Load{Running: 4, KVUsage: .5})
		gate.enter(4)
		time.Sleep(1500 * time.Millisecond)
		expect("twice as many", 2, api.Load{Running: 8, KVUsage: 1})
		gate.leave()
		time.Sleep(time.Hour)
		expect("idle again", 1, api.Load{})
		set := func(tokens int64) {
			mu.Lock()
			defer mu.Unlock()
			cached, published = tokens, true
		}
		set(320)
		gate.enter(1)
		gate.leave()
		time.Sleep(time.Minute)
		expect("a short request that filled the cache", 1, api.Load{Cached: 320, CacheKnown: true})
		set(336)
		gate.enter(1)
		gate.leave()
		time.Sleep(time.Minute)
		expect("one that added little", 1)
		gate.enter(4)
		time.Sleep(2 * time.Second)
		expect("steady with a cache", 2, api.Load{Running: 4, KVUsage: .5, Cached: 336, CacheKnown: true})
		gate.leave()
		time.Sleep(time.Hour)
		expect("idle with a cache", 1, api.Load{Cached: 336, CacheKnown: true})
		cancel()
		<-ended
	})
}
