package jobs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// metrics are the metrics of batches and later answers. Their labels have constant values.
type metrics struct {
	lines, ended, later, responses *prometheus.CounterVec
	running, waiting               prometheus.Gauge
}

// DescribeMetrics registers the metrics of a [Server] with reg, without values, for listings.
func DescribeMetrics(reg prometheus.Registerer) error {
	_, err := newMetrics(reg, func() int64 { return 0 })
	return err
}

// newMetrics registers the metrics. bytes returns the size of the store.
func newMetrics(reg prometheus.Registerer, bytes func() int64) (*metrics, error) {
	counter := func(subsystem, name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rouse", Subsystem: subsystem, Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		lines:     counter("batch", "lines_total", "Attempts at lines of batches, by result: completed, failed, retried (an instance failed at it), refused (sent again later).", "result"),
		ended:     counter("batch", "ended_total", "Batches that have ended, by status.", "status"),
		later:     counter("later", "requests_total", "Requests with Prefer: respond-async, by result: answered, cancelled, expired.", "result"),
		responses: counter("store", "responses_total", "Responses with store: true, by result: kept, failed (the store had no room, or could not be written).", "result"),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "batch", Name: "running",
			Help: "Batches that run."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "later", Name: "waiting_requests",
			Help: "Requests with Prefer: respond-async that are being served."}),
	}
	for _, status := range []string{store.Failed, store.Expired} { // these exist from the start, so that the first one counts as an increase
		m.ended.WithLabelValues(status)
	}
	stored := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "store", Name: "bytes",
		Help: "Files, outputs of batches, later answers and responses, with their records, in bytes."}, func() float64 { return float64(bytes()) })
	for _, c := range []prometheus.Collector{m.lines, m.ended, m.later, m.responses, m.running, m.waiting, stored} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
