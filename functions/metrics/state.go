package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

// stateCollector collects the state at each scrape.
type stateCollector struct {
	status func() api.InstanceStatus
	state  *prometheus.Desc
}

func newStateCollector(status func() api.InstanceStatus) *stateCollector {
	return &stateCollector{status, prometheus.NewDesc("rouse_function_state", "1 for the state the instance is in, 0 for the others.", []string{"state"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.state }

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	present := c.status().State
	for _, state := range []api.State{api.Starting, api.Awake, api.Draining, api.Asleep, api.Unhealthy, api.Gone} {
		value := 0.0
		if state == present {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value, string(state))
	}
}
