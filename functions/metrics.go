package functions

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// metrics are the instance's own; the runtime's stay at the runtime.
type metrics struct {
	handler   http.Handler
	requests  *prometheus.CounterVec
	errors    *prometheus.CounterVec
	firstByte *prometheus.HistogramVec
	total     *prometheus.HistogramVec
}

// latencies are in seconds, from a cache hit to a long generation.
var latencies = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

func newMetrics(status func() api.InstanceStatus) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rouse_function_requests_total", Help: "Requests by path and status of the answer; 499: the client left.",
		}, []string{"path", "status"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rouse_function_errors_total", Help: "Requests that this instance refused or could not bring to a good end, by code.",
		}, []string{"code"}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_function_first_byte_seconds", Help: "Time from a request's arrival to the first byte of its answer.", Buckets: latencies,
		}, []string{"path"}),
		total: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_function_request_seconds", Help: "Time from a request's arrival to the last byte of its answer.", Buckets: latencies,
		}, []string{"path"}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.errors, m.firstByte, m.total, newStateCollector(status))
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// observe counts one request of a client.
func (m *metrics) observe(o proxy.Outcome) {
	m.requests.WithLabelValues(o.Path, strconv.Itoa(o.Status)).Inc()
	if o.Code != "" {
		m.errors.WithLabelValues(o.Code).Inc()
	}
	if o.FirstByte > 0 {
		m.firstByte.WithLabelValues(o.Path).Observe(o.FirstByte.Seconds())
		m.total.WithLabelValues(o.Path).Observe(o.Total.Seconds())
	}
}

// stateCollector makes gauges of the status at the time they are read.
type stateCollector struct {
	status func() api.InstanceStatus
	state  *prometheus.Desc
	gauges []gauge
}

// gauge is one number of the status.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(api.InstanceStatus) float64
}

func newStateCollector(status func() api.InstanceStatus) *stateCollector {
	c := &stateCollector{status: status, state: prometheus.NewDesc("rouse_function_state", "1 for the state the instance is in, 0 for the others.", []string{"state"}, nil)}
	for _, g := range []struct {
		name, help string
		kind       prometheus.ValueType
		value      func(api.InstanceStatus) float64
	}{
		{"running", "Requests in the runtime now.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return float64(s.Running) }},
		{"concurrency", "Requests that the runtime takes at once.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return float64(s.Concurrency) }},
		{"sleep_level", "Depth of the sleep, 0 where it does not sleep.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return float64(s.Level) }},
		{"memory_bytes", "Host memory of the runtime and its descendants, as last measured.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return float64(s.Memory.Host) }},
		{"restarts_total", "Restarts of the runtime.", prometheus.CounterValue, func(s api.InstanceStatus) float64 { return float64(s.Restarts) }},
		{"load_seconds", "Duration of the last start, from the process to the first token.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return s.LoadTime.Seconds() }},
		{"wake_seconds", "Duration of the last wake, to the first token.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return s.WakeTime.Seconds() }},
		{"sleep_seconds", "Duration of the last sleep's beginning, without the drain.", prometheus.GaugeValue, func(s api.InstanceStatus) float64 { return s.SleepTime.Seconds() }},
	} {
		c.gauges = append(c.gauges, gauge{prometheus.NewDesc("rouse_function_"+g.name, g.help, nil, nil), g.kind, g.value})
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.state
	for _, g := range c.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector: one snapshot for all.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	for _, state := range []api.State{api.Starting, api.Awake, api.Draining, api.Asleep, api.Unhealthy, api.Gone} {
		value := 0.0
		if s.State == state {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value, string(state))
	}
	for _, g := range c.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(s))
	}
}
