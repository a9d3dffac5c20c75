package replicas

import "github.com/prometheus/client_golang/prometheus"

// DescribeMetrics registers a [Relay]'s metrics with r without values, to list them.
func DescribeMetrics(r prometheus.Registerer) error { return r.Register(newStaleGauge()) }

func newStaleGauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rouse_relay_stale_targets", Help: "Targets that are left as they are because their series is gone, old or no number.",
	})
}
