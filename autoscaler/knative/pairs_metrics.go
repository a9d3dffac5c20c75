package knative

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
)

type dualMetrics struct {
	starts *prometheus.CounterVec
	took   *prometheus.HistogramVec
}

// DescribeMetrics registers a [Fleet]'s metrics with r without values, to list them.
func DescribeMetrics(r prometheus.Registerer) error {
	newDualMetrics().register(r)
	return nil
}

func newDualMetrics() *dualMetrics {
	m := &dualMetrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rouse_dualpod_actuations_total", Help: "Instances of functions with dual pods that came up, by path: hot wakes a sleeper, warm starts a runtime in a provider that is there, cold makes a provider, cold-freed after others had to give way.",
		}, []string{"path"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_dualpod_actuation_seconds", Help: "Time from the decision until awake, the claim of the GPUs included, by path.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 13),
		}, []string{"path"}),
	}
	for _, path := range []api.Path{autoscaler.PathHot, autoscaler.PathWarm, autoscaler.PathCold, autoscaler.PathColdFreed} {
		m.starts.WithLabelValues(string(path))
	}
	return m
}

func (m *dualMetrics) register(r prometheus.Registerer) { r.MustRegister(m.starts, m.took) }

func (m *dualMetrics) up(path api.Path, took time.Duration) {
	m.starts.WithLabelValues(string(path)).Inc()
	m.took.WithLabelValues(string(path)).Observe(took.Seconds())
}
