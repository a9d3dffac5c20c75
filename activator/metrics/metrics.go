// Package metrics defines the activator's Prometheus metrics. Labels are bounded; the series of a removed function
// are deleted.
package metrics

import (
	"cmp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

// None is the function label of requests that found none.
const None = "none"

// From a warm hop to a cold start of a large model.
var buckets = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
	0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
}

// Metrics are the activator's metrics, safe for concurrent use.
type Metrics struct {
	requests                 *prometheus.CounterVec
	duration, hold, first    *prometheus.HistogramVec
	held, heldBytes, running *prometheus.GaugeVec
	wakes, refused, retries  *prometheus.CounterVec
	fallbacks                *prometheus.CounterVec
	tenants                  tenants
	vectors                  []vector
}

type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

// New registers the metrics. dropped may be nil.
func New(reg prometheus.Registerer, dropped func() int64) (m *Metrics, err error) {
	byFunction := []string{"function"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rouse", Subsystem: "activator", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "activator", Name: name, Help: help}, byFunction)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "rouse", Subsystem: "activator", Name: name, Help: help, Buckets: buckets}, byFunction)
	}
	m = &Metrics{
		requests:  counter("requests_total", "Requests answered, by function and HTTP status; 499 is a client that left.", "function", "code"),
		duration:  histogram("request_duration_seconds", "Time from the request's last body byte to the end of the answer."),
		hold:      histogram("hold_seconds", "Time in the queue, of requests that were held."),
		first:     histogram("ttft_seconds", "Time from the dispatch to the first byte of the answer's body."),
		held:      gauge("held_requests", "Requests in the queue."),
		heldBytes: gauge("held_bytes", "Memory of the bodies in the queue."),
		running:   gauge("running_requests", "Requests sent to instances and not finished."),
		wakes:     counter("wakes_total", "Wakes, by path (direct: by this activator under a grant) and result.", "function", "path", "result"),
		refused:   counter("refused_total", "Requests that Rouse itself refused, by code.", "function", "reason"),
		retries:   counter("retries_total", "Attempts that an instance gave back, failed before the first byte, or cut and another one went on with, or that were paused for another client (evicted), by code.", "function", "reason"),
	}
	m.fallbacks = counter("fallbacks_total", "Requests that went to a fallback of the function, by the code of why it did not answer.", "function", "reason")
	m.vectors = []vector{m.fallbacks, m.requests, m.duration, m.hold, m.first, m.held, m.heldBytes, m.running, m.wakes, m.refused, m.retries}
	for _, v := range m.vectors {
		if err := reg.Register(v); err != nil {
			return nil, err
		}
	}
	if m.tenants, err = newTenants(reg, counter); err != nil {
		return nil, err
	}
	if dropped != nil {
		err := reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "rouse", Subsystem: "activator", Name: "events_dropped_total",
			Help: "CloudEvents dropped because the receiver was slower than the events came.",
		}, func() float64 { return float64(dropped()) }))
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Function is the metrics of one function.
type Function struct {
	m                        *Metrics
	label                    string
	duration, hold, first    prometheus.Observer
	held, heldBytes, running prometheus.Gauge

	mu      sync.Mutex // guards removed, and the beginning of series
	removed bool
}

// Of returns a function's metrics; empty: of [None].
func (m *Metrics) Of(name api.FunctionName) *Function {
	label := cmp.Or(string(name), None)
	return &Function{
		m: m, label: label,
		duration: m.duration.WithLabelValues(label), hold: m.hold.WithLabelValues(label), first: m.first.WithLabelValues(label),
		held: m.held.WithLabelValues(label), heldBytes: m.heldBytes.WithLabelValues(label), running: m.running.WithLabelValues(label),
	}
}

// Remove deletes the function's series. No other begins.
func (f *Function) Remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed = true
	by := prometheus.Labels{"function": f.label}
	for _, v := range f.m.vectors {
		v.DeletePartialMatch(by)
	}
}

func (f *Function) count(v *prometheus.CounterVec, labels ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.removed {
		v.WithLabelValues(append([]string{f.label}, labels...)...).Inc()
	}
}

// Done counts a finished request.
func (f *Function) Done(status int, took time.Duration) {
	f.count(f.m.requests, strconv.Itoa(status))
	f.duration.Observe(took.Seconds())
}

// Timing records an answered request.
func (f *Function) Timing(t Timing) {
	f.first.Observe(t.First.Seconds())
	f.Waited(t)
}

// Waited records a wait, also to resume a stream.
func (f *Function) Waited(t Timing) {
	if t.Hold > 0 {
		f.hold.Observe(t.Hold.Seconds())
	}
}

// Held sets the gauges of the queue.
func (f *Function) Held(n int, b api.Bytes) {
	f.held.Set(float64(n))
	f.heldBytes.Set(float64(b))
}

// Running adds to the number of running requests.
func (f *Function) Running(delta int) { f.running.Add(float64(delta)) }

// Woke counts a wake.
func (f *Function) Woke(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	f.count(f.m.wakes, "direct", result)
}

// Refused counts a refusal. code may be empty.
func (f *Function) Refused(code string) {
	f.count(f.m.refused, cmp.Or(code, "bad_request"))
}

// FellBack counts a request that goes to another model.
func (f *Function) FellBack(code string) {
	f.Refused(code)
	f.count(f.m.fallbacks, code)
}

// Retried counts an attempt whose request goes elsewhere.
func (f *Function) Retried(code string) {
	f.count(f.m.retries, reason(code))
}

// reasons bounds the label: the code comes from an instance.
var reasons = map[string]bool{
	api.CodeAsleep: true, api.CodeLoading: true, api.CodeUnhealthy: true, api.CodeDraining: true,
	api.CodeBusy: true, api.CodeRuntimeFailed: true, api.CodeShutdown: true, api.CodeStreamCut: true, api.CodeMoved: true, "evicted": true,
}

func reason(code string) string {
	if reasons[code] {
		return code
	}
	return "other"
}

// Timing is the breakdown of a request's time.
type Timing struct {
	Hold  time.Duration
	Wake  time.Duration // without an awake instance
	Queue time.Duration // the rest
	First time.Duration // from the last dispatch to the first byte
}

// Since returns t's waits after before.
func (t Timing) Since(before Timing) Timing {
	return Timing{Hold: t.Hold - before.Hold, Wake: t.Wake - before.Wake, Queue: t.Queue - before.Queue}
}

// String formats t as a Server-Timing header (W3C), in milliseconds.
func (t Timing) String() string {
	b := make([]byte, 0, 80)
	for _, m := range []struct {
		name string
		d    time.Duration
	}{{"hold", t.Hold}, {"wake", t.Wake}, {"queue", t.Queue}, {"ttft", t.First}} {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, m.name...), ";dur="...)
		b = strconv.AppendFloat(b, float64(m.d.Microseconds())/1000, 'f', -1, 64)
	}
	return string(b)
}

const maxTenants = 200

// OtherTenants stands for tenants beyond maxTenants.
const OtherTenants = "other"

type tenants struct {
	requests, tokens *prometheus.CounterVec

	mu    *sync.Mutex // guards known
	known map[string]bool
}

func newTenants(reg prometheus.Registerer, counter func(name, help string, labels ...string) *prometheus.CounterVec) (tenants, error) {
	t := tenants{
		requests: counter("tenant_requests_total", "Requests with a key that were answered or refused, by tenant and HTTP status.", "tenant", "code"),
		tokens:   counter("tenant_tokens_total", "Tokens of answered requests with a key, by tenant and direction (input, output).", "tenant", "direction"),
		mu:       &sync.Mutex{}, known: map[string]bool{},
	}
	if err := reg.Register(t.requests); err != nil {
		return t, err
	}
	return t, reg.Register(t.tokens)
}

func (t *tenants) label(tenant string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.known[tenant]:
	case len(t.known) >= maxTenants:
		return OtherTenants
	default:
		t.known[tenant] = true
	}
	return tenant
}

// Tenant counts a tenant's request and its tokens.
func (m *Metrics) Tenant(tenant string, status int, input, output api.Tokens) {
	label := m.tenants.label(tenant)
	m.tenants.requests.WithLabelValues(label, strconv.Itoa(status)).Inc()
	if input+output > 0 {
		m.tenants.tokens.WithLabelValues(label, "input").Add(float64(input))
		m.tenants.tokens.WithLabelValues(label, "output").Add(float64(output))
	}
}
