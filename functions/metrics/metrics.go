// Package metrics answers an instance's GET /metrics, with the same names whatever the runtime. They are those of the model server protocol
// of the Gateway API inference extension (its proposal 003), which are vLLM's, with the label model_name. docs/metrics.md lists them.
//
// Where a value comes from:
//
//  1. The runtime's own metrics, if it has them, read at our own scrapes, at most every 200 ms and for at most 250 ms. A sleeping runtime
//     is never asked. Sizes and counters, which a sleep does not change, keep their last values.
//  2. Else the proxy's counts. Requests in the runtime count as running, and none as waiting: a request without a slot waits elsewhere.
//     Tokens of prompts are estimated from the length of bodies by the runtime's last counts.
//  3. The share of the KV cache is then tokens by capacity, if that is known, else requests by slots.
//  4. Unknown sizes are left out: cache_config_info, max_token_capacity, lora_requests_info; and so are histograms without observations.
//     All others are always present: a picker may take an instance without them for broken.
//
// An adapter counts as running only while a request that names it is in the runtime: runtimes often report all loaded adapters.
package metrics

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Config configures [Metrics].
type Config struct {
	Model  api.ModelName
	Status func() api.InstanceStatus
	// Load returns the load of the requests in the runtime; nil: only the status counts.
	Load func() proxy.Load
	// Signals reads the runtime's own metrics and ends when its context does. An error means that there are none now; nil: never.
	Signals func(context.Context) (runtime.Signals, error)
	// Cached returns the number of tokens in the runtime's prefix cache, from its events; nil: it publishes none.
	Cached func() (tokens int64, known bool)
}

// Metrics counts requests and answers scrapes. It is safe for many goroutines and starts none.
type Metrics struct {
	handler                     http.Handler
	requests, errors            *prometheus.CounterVec
	firstToken, prefill         prometheus.Histogram
	decode, request             prometheus.Histogram // one by two names
	measured                    atomic.Bool          // a request's first token was seen
	prompt, generated           atomic.Uint64        // tokens
	firstTokens, firstTokenTime atomic.Uint64        // number, and sum in nanoseconds
	protocol                    *protocol
	all                         []prometheus.Collector
	cached                      func() (tokens int64, known bool)
}

// Bounds of buckets, in seconds.
var latencies = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

var perToken = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

// New returns the metrics of one instance.
func New(cfg Config) (*Metrics, error) {
	if cfg.Status == nil || cfg.Model == "" {
		return nil, errors.New("metrics: Config needs Status and Model")
	}
	if cfg.Load == nil {
		cfg.Load = func() proxy.Load { return proxy.Load{Requests: cfg.Status().Running} }
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	model := prometheus.Labels{"model_name": string(cfg.Model)}
	tokens := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: model})
	}
	m := &Metrics{
		cached:     cfg.Cached,
		requests:   counter("rouse_function_requests_total", "Requests by path and status of the answer; 499: the client left.", "path", "status"),
		errors:     counter("rouse_function_errors_total", "Requests that this instance refused or could not bring to a good end, by code.", "code"),
		firstToken: tokens(runtime.FirstToken, "Time from a request to its first token.", latencies),
		decode:     tokens(runtime.PerOutputToken, "Time per token of a request, after its first.", perToken),
		request:    tokens(runtime.PerRequestToken, "Mean time per token of a request, after its first.", perToken),
		prefill:    tokens(runtime.PerPrefillToken, "Time to a request's first token, by the tokens of its prompt.", perToken),
	}
	m.protocol = newProtocol(cfg, model, m)
	ofStatus := func(name, help string, value func(api.InstanceStatus) int) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(cfg.Status())) })
	}
	m.all = []prometheus.Collector{
		m.requests, m.errors, m.protocol, newStateCollector(cfg.Status),
		ofStatus("rouse_function_restarts_total", "Restarts of the runtime.", func(s api.InstanceStatus) int { return s.Restarts }),
		ofStatus("rouse_function_canary_mismatches_total", "Wakes after which the model did not answer the canary as before its sleep, and the runtime was started again.",
			func(s api.InstanceStatus) int { return s.CanaryMismatches }),
	}
	registry := prometheus.NewRegistry()
	if err := m.Register(registry); err != nil {
		return nil, err
	}
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m, nil
}

// Register also registers the metrics with reg.
func (m *Metrics) Register(reg prometheus.Registerer) error {
	for _, c := range m.all {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Handler answers scrapes, within half a second whatever the runtime does.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Poll reads the runtime's own metrics, to remember them while it sleeps. It ends within a quarter of a second, and with ctx.
func (m *Metrics) Poll(ctx context.Context) { m.protocol.scraper.look(ctx) }

// MaxAdapters returns how many adapters the runtime can use at once; 0: unknown.
func (m *Metrics) MaxAdapters() int {
	return m.protocol.read().MaxAdapters
}

// Observe counts one request of a client.
func (m *Metrics) Observe(o proxy.Outcome) {
	m.requests.WithLabelValues(o.Path, strconv.Itoa(o.Status)).Inc()
	if o.Code != "" {
		m.errors.WithLabelValues(o.Code).Inc()
	}
	m.prompt.Add(uint64(max(0, o.PromptTokens)))
	m.generated.Add(uint64(max(0, o.GeneratedTokens)))
	if o.FirstToken == 0 {
		return
	}
	m.measured.Store(true)
	m.firstToken.Observe(o.FirstToken.Seconds())
	m.firstTokens.Add(1)
	m.firstTokenTime.Add(uint64(max(0, o.FirstToken)))
	if o.PromptTokens > 0 {
		m.prefill.Observe((o.FirstToken - o.Sent).Seconds() / float64(o.PromptTokens))
	}
	if o.GeneratedTokens > 1 {
		each := (o.LastToken - o.FirstToken).Seconds() / float64(o.GeneratedTokens-1)
		m.decode.Observe(each)
		m.request.Observe(each)
	}
}

// Meter derives rates from successive readings of [Metrics]. It belongs to one goroutine.
type Meter struct {
	metrics *Metrics
	last    runtime.Signals // meaningless while at is zero
	firsts  runtime.Histogram
	at      time.Time // of the last reading, or since when requests run
}

// Meter returns a meter without a reading.
func (m *Metrics) Meter() *Meter { return &Meter{metrics: m} }

// Begin says that requests run from now on, and that none did since the last reading: that time counts for no rate. The first call also
// takes a reading.
func (m *Meter) Begin() {
	if m.at.IsZero() {
		m.Poll()
	}
	m.at = time.Now()
}

// Poll returns the present load. It asks the runtime, for at most a quarter of a second. Rates and the time to first token are since the
// previous reading, 0 at the first one and after the runtime's counters were reset.
func (m *Meter) Poll() api.Load {
	v := m.metrics.protocol.read()
	now, firsts := time.Now(), m.metrics.firsts(v)
	load := api.Load{Running: int(sane(v.Running)), Waiting: int(sane(v.Waiting)), KVUsage: sane(v.KVUsage)}
	load.Cached, load.CacheKnown = m.metrics.cache(v)
	if passed := now.Sub(m.at).Seconds(); !m.at.IsZero() && passed > 0 {
		load.TokensPerSecond = sane((v.GeneratedTokens - m.last.GeneratedTokens) / passed)
		load.PromptTokensPerSecond = sane((v.PromptTokens - m.last.PromptTokens) / passed)
		first, took := float64(firsts.Count)-float64(m.firsts.Count), sane(firsts.Sum-m.firsts.Sum)
		if each := took / first; first >= 1 && each <= mostFirstToken {
			load.TTFT = time.Duration(each * float64(time.Second))
		}
	}
	m.last, m.firsts, m.at = v, firsts, now
	return load
}

// Rest returns the load of a runtime without requests: the size of its prefix cache, if it publishes that. It asks nobody.
func (m *Meter) Rest() (load api.Load) {
	load.Cached, load.CacheKnown = m.metrics.published()
	return load
}

func (m *Metrics) published() (tokens api.Tokens, known bool) {
	if m.cached == nil {
		return 0, false
	}
	n, known := m.cached()
	return api.Tokens(n), known
}

// cache returns the size of the prefix cache: from the runtime's events, else from its metrics, else the capacity.
func (m *Metrics) cache(v runtime.Signals) (tokens api.Tokens, known bool) {
	if tokens, known = m.published(); known {
		return tokens, true
	}
	if !(v.Capacity > 0 && v.Capacity < mostTokens) {
		return 0, false
	}
	if v.Cached >= 0 && v.Cached <= v.Capacity {
		return api.Tokens(v.Cached), true
	}
	return api.Tokens(v.Capacity), true
}

// firsts returns the runtime's times to the first token, else those measured here.
func (m *Metrics) firsts(v runtime.Signals) runtime.Histogram {
	if h, theirs := v.Times[runtime.FirstToken]; theirs {
		return h
	}
	return runtime.Histogram{Count: m.firstTokens.Load(), Sum: time.Duration(m.firstTokenTime.Load()).Seconds()}
}

// mostFirstToken is the most plausible mean, in seconds.
const mostFirstToken = 3600

// sane returns v, or 0 if v is negative, NaN or implausibly large: JSON has no infinity.
func sane(v float64) float64 {
	if v > 0 && v < 1e9 {
		return v
	}
	return 0
}

// Differs reports whether a differs from b by so much that a planner should know.
func Differs(a, b api.Load) bool {
	share := func(a, b, least float64) bool {
		d := max(a-b, b-a)
		return d > least && d > max(a, b)/4
	}
	return share(float64(a.Running), float64(b.Running), 0) ||
		share(float64(a.Waiting), float64(b.Waiting), 0) ||
		max(a.KVUsage-b.KVUsage, b.KVUsage-a.KVUsage) >= 0.05 ||
		a.CacheKnown != b.CacheKnown || share(float64(a.Cached), float64(b.Cached), 0) ||
		share(a.TokensPerSecond, b.TokensPerSecond, 1) ||
		share(a.PromptTokensPerSecond, b.PromptTokensPerSecond, 1) ||
		share(a.TTFT.Seconds(), b.TTFT.Seconds(), 0.002)
}
