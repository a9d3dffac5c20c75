package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

// stateCollector collects gauges of the status at each scrape.
type stateCollector struct {
	status func() api.InstanceStatus
	state  *prometheus.Desc
	gauges []gauge
}

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
		{"canary_mismatches_total", "Wakes after which the model did not answer the canary as before its sleep, and the runtime was started again.", prometheus.CounterValue, func(s api.InstanceStatus) float64 { return float64(s.CanaryMismatches) }},
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

// Collect implements prometheus.Collector, with one snapshot for all.
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
