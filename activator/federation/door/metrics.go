package door

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	agents  *prometheus.GaugeVec
	links   *prometheus.GaugeVec
	doubles *prometheus.CounterVec
	lost    *prometheus.CounterVec
	refused prometheus.Counter
}

// DescribeMetrics registers the metrics of a front door without values, for listings.
func DescribeMetrics(r prometheus.Registerer) error {
	_, err := newMetrics(r)
	return err
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	of := []string{"cluster"}
	m := &metrics{
		agents:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rouse_cluster_agents", Help: "Agents of a cluster that hold a control stream."}, of),
		links:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rouse_cluster_links", Help: "Connections for requests to a cluster, idle ones included."}, of),
		doubles: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_cluster_double_executions_total", Help: "Attempts that a cluster ended because a later attempt of the same request came."}, of),
		lost:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_cluster_lost_attempts_total", Help: "Attempts whose link failed before their answer began: the cluster may go on with one until its lease ends."}, of),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "rouse_cluster_refused_total", Help: "Control streams and links that were refused."}),
	}
	return m, errors.Join(r.Register(m.agents), r.Register(m.links), r.Register(m.doubles), r.Register(m.lost), r.Register(m.refused))
}
