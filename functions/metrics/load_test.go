package metrics_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// firsts returns a histogram of count times to the first token, of seconds in total.
func firsts(count uint64, seconds float64) map[string]runtime.Histogram {
	return map[string]runtime.Histogram{runtime.FirstToken: {Count: count, Sum: seconds}}
}

func TestMeterMakesRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}}
		i.signals = runtime.Signals{GeneratedTokens: 100, PromptTokens: 50, Times: firsts(10, 3)}
		meter := set(t, i.config()).Meter()
		look := func(want api.Load) {
			t.Helper()
			if diff := cmp.Diff(want, meter.Poll()); diff != "" {
				t.Errorf("load (-want +got):\n%s", diff)
			}
		}
		meter.Begin()
		time.Sleep(2 * time.Second)
		i.signals = runtime.Signals{Running: 3, Waiting: 1, KVUsage: .5, GeneratedTokens: 300, PromptTokens: 70, Times: firsts(12, 3.5)}
		look(api.Load{Running: 3, Waiting: 1, KVUsage: .5, TokensPerSecond: 100, PromptTokensPerSecond: 10, TTFT: 250 * time.Millisecond})
		time.Sleep(time.Second)
		look(api.Load{Running: 3, Waiting: 1, KVUsage: .5}) // nothing happened
		time.Sleep(time.Hour)                               // idle
		meter.Begin()
		time.Sleep(time.Second)
		i.signals.GeneratedTokens = 310
		look(api.Load{Running: 3, Waiting: 1, KVUsage: .5, TokensPerSecond: 10})
		time.Sleep(time.Second)
		i.signals = runtime.Signals{Running: 1, GeneratedTokens: 5, Times: firsts(1, 9)} // it has restarted
		look(api.Load{Running: 1})
		time.Sleep(time.Second)
		i.signals = runtime.Signals{Running: math.Inf(1), Waiting: 1e300, KVUsage: math.NaN(), GeneratedTokens: math.Inf(1), Times: firsts(2, math.Inf(1))}
		look(api.Load{})
	})
}

// Implausible metrics are ignored: the function counts itself.
func TestMeterOfAbsurdMetrics(t *testing.T) {
	for _, v := range []float64{-5, 1e300, math.Inf(1), math.Inf(-1), math.NaN()} {
		synctest.Test(t, func(t *testing.T) {
			i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}, load: proxy.Load{Requests: 2}}
			meter := set(t, i.config()).Meter()
			meter.Begin()
			time.Sleep(time.Second)
			i.signals = runtime.Signals{Running: v, Waiting: v, KVUsage: v, BlockTokens: v, Blocks: v, PromptTokens: v, GeneratedTokens: v, Times: firsts(1, 1e8)}
			if diff := cmp.Diff(api.Load{Running: 2, KVUsage: .25}, meter.Poll()); diff != "" {
				t.Errorf("load of a runtime that says %v (-want +got):\n%s", v, diff)
			}
		})
	}
}

// A runtime without metrics: the function counts streams itself.
func TestMeterOfWhatTheFunctionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}}
		i.signals = runtime.Unknown()
		m := set(t, i.config())
		meter := m.Meter()
		meter.Begin()
		i.load = proxy.Load{Requests: 2}
		m.Observe(proxy.Outcome{Path: "/v1/completions", Status: 200, FirstToken: 300 * time.Millisecond, PromptTokens: 20, GeneratedTokens: 40})
		time.Sleep(time.Second)
		want := api.Load{Running: 2, KVUsage: .25, TokensPerSecond: 40, PromptTokensPerSecond: 20, TTFT: 300 * time.Millisecond}
		if diff := cmp.Diff(want, meter.Poll()); diff != "" {
			t.Errorf("load (-want +got):\n%s", diff)
		}
	})
}

// The size of the prefix cache comes from the runtime's events, else from its metrics, else it is the capacity.
func TestMeterOfCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}}
		published, publishes := int64(0), false
		cfg := i.config()
		cfg.Cached = func() (int64, bool) { return published, publishes }
		meter := set(t, cfg).Meter()
		for _, c := range []struct {
			publishes        bool
			cached, capacity float64
			want             api.Tokens
			known            bool
		}{
			{false, -1, -1, 0, false}, {false, -1, 1000, 1000, true}, {false, 300, 1000, 300, true}, {false, 0, 1000, 0, true}, {true, 300, 1000, 200, true},
			{false, math.NaN(), 1000, 1000, true}, {false, 5000, 1000, 1000, true}, {false, 300, math.Inf(1), 0, false},
		} {
			publishes, published = c.publishes, 200
			i.signals = runtime.Unknown()
			i.signals.Cached, i.signals.Capacity = c.cached, c.capacity
			time.Sleep(time.Second)
			if l := meter.Poll(); l.Cached != c.want || l.CacheKnown != c.known {
				t.Errorf("%+v: %d, known: %t", c, l.Cached, l.CacheKnown)
			}
		}
	})
}

func TestDiffers(t *testing.T) {
	base := api.Load{Running: 8, Waiting: 4, KVUsage: .5, TokensPerSecond: 100, PromptTokensPerSecond: 50, TTFT: 200 * time.Millisecond}
	for name, tc := range map[string]struct {
		change func(*api.Load)
		want   bool
	}{
		"nothing":         {func(*api.Load) {}, false},
		"one more runs":   {func(l *api.Load) { l.Running = 9 }, false},
		"half of them":    {func(l *api.Load) { l.Running = 4 }, true},
		"more wait":       {func(l *api.Load) { l.Waiting = 6 }, true},
		"KV cache":        {func(l *api.Load) { l.KVUsage = .56 }, true},
		"KV cache, a bit": {func(l *api.Load) { l.KVUsage = .52 }, false},
		"slower":          {func(l *api.Load) { l.TokensPerSecond = 60 }, true},
		"a bit slower":    {func(l *api.Load) { l.TokensPerSecond = 90 }, false},
		"cache":           {func(l *api.Load) { l.Cached, l.CacheKnown = 100, true }, true},
		"first token":     {func(l *api.Load) { l.TTFT = 300 * time.Millisecond }, true},
		"idle":            {func(l *api.Load) { *l = api.Load{} }, true},
	} {
		other := base
		tc.change(&other)
		if got := metrics.Differs(base, other); got != tc.want {
			t.Errorf("%s: differs %t, want %t", name, got, tc.want)
		}
	}
}
