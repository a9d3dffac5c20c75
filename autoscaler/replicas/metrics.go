package replicas

import "github.com/prometheus/client_golang/prometheus"

// metrics are the relay's. The targets' labels are bounded by the sources' series.
type metrics struct {
	reads, sets *prometheus.CounterVec
	desired     *prometheus.GaugeVec
	stale       prometheus.Gauge
}

// DescribeMetrics registers a [Relay]'s metrics with r without values, to list them.
func DescribeMetrics(r prometheus.Registerer) error {
	newMetrics().register(r)
	return nil
}

func newMetrics() *metrics {
	return &metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rouse_relay_reads_total", Help: "Readings of sources by result: ok or error.",
		}, []string{"result"}),
		sets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rouse_relay_sets_total", Help: "Scales that were set, by kind of target and result: ok, error, or dry where nothing is written.",
		}, []string{"kind", "result"}),
		desired: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rouse_relay_desired_replicas", Help: "What each target should have, as last read and bounded.",
		}, []string{"kind", "namespace", "name"}),
		stale: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rouse_relay_stale_targets", Help: "Targets that are left as they are because their series is gone, old or no number.",
		}),
	}
}

func (m *metrics) register(r prometheus.Registerer) {
	r.MustRegister(m.reads, m.sets, m.desired, m.stale)
}
