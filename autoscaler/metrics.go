package autoscaler

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Levels are read from the loop at each collection.
type metrics struct {
	a         *Autoscaler
	decisions *prometheus.CounterVec
	plan      prometheus.Histogram
	wake      *prometheus.HistogramVec
	came      map[string]*came // by placement; owned by the loop

	device, instances, grants, hot, held, tokens, cached *prometheus.Desc
	replicas                                             replicas
}

type came struct{ all, hot int }

func placement(f *api.Function) string {
	if f.DualPods {
		return "dual-pods"
	}
	return "in-place"
}

func newMetrics(a *Autoscaler) *metrics {
	return &metrics{
		a: a,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rouse_autoscaler_decisions_total", Help: "Decisions by action, failed ones included.",
		}, []string{"action"}),
		plan: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rouse_autoscaler_plan_seconds", Help: "Time that one plan took.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 9),
		}),
		wake: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rouse_autoscaler_wake_seconds", Help: "Time from the beginning to awake: hot wakes a runtime that sleeps, warm starts a runtime in an instance that is there, cold starts an instance.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14),
		}, []string{"path"}),
		came:      map[string]*came{},
		replicas:  newReplicas(),
		hot:       prometheus.NewDesc("rouse_autoscaler_hot_share", "Share of the instances that became awake by the wake of a sleeping runtime, 0 to 1, since this process began; absent while there was none.", []string{"placement"}, nil),
		held:      prometheus.NewDesc("rouse_autoscaler_gpu_seconds_total", "Time of GPUs, by function, tenant and what it was: awake, asleep or, of no function, idle. Counted when the minute after has ended; all series together are the time of all GPUs.", []string{"function", "tenant", "state"}, nil),
		cached:    prometheus.NewDesc("rouse_autoscaler_cached_tokens_total", "Those tokens of input that instances had in their caches, as far as they say, by function and tenant.", []string{"function", "tenant"}, nil),
		tokens:    prometheus.NewDesc("rouse_autoscaler_tokens_total", "Tokens of answered requests, by function, tenant and direction (input, output), as activators report them.", []string{"function", "tenant", "direction"}, nil),
		device:    prometheus.NewDesc("rouse_autoscaler_device_bytes", "Memory of each device by what it is used for.", []string{"device", "state"}, nil),
		instances: prometheus.NewDesc("rouse_autoscaler_instances", "Instances by state.", []string{"state"}, nil),
		grants:    prometheus.NewDesc("rouse_autoscaler_grants", "Standing grants that sleeping instances have.", nil, nil),
	}
}

func (m *metrics) register(r prometheus.Registerer) {
	m.decisions.WithLabelValues(string(decide.Fail)) // present from the beginning: the first one is an increase
	r.MustRegister(m.decisions, m.plan, m.wake, m)
}

func (m *metrics) woke(f *api.Function, path string, took time.Duration) {
	m.wake.WithLabelValues(path).Observe(took.Seconds())
	c := m.came[placement(f)]
	if c == nil {
		c = &came{}
		m.came[placement(f)] = c
	}
	c.all++
	if path == string(PathHot) {
		c.hot++
	}
}

func (i *instance) path() string {
	switch {
	case i.From >= inventory.Stopped:
		return string(PathCold)
	case i.Unloaded:
		return string(PathWarm)
	}
	return string(PathHot)
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	c <- m.device
	c <- m.instances
	c <- m.grants
	c <- m.hot
	c <- m.held
	c <- m.tokens
	c <- m.cached
	m.replicas.describe(c)
}

type levels struct {
	devices   []admin.Device
	instances map[api.State]int
	grants    int
	hot       map[string]float64
	replicas  []count
	usage     []admin.UsageRow
}

// Collect implements [prometheus.Collector]. The loop has a second to answer.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l, err := ask(ctx, m.a, m.a.levels)
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, d := range l.devices {
		for _, s := range []struct {
			state string
			bytes api.Bytes
		}{
			{"capacity", d.Capacity}, {"awake", d.Awake}, {"rising", d.Rising}, {"reserved", d.Reserved},
			{"asleep", d.Asleep}, {"leaving", d.Leaving}, {"others", d.Others}, {"free", d.Free},
		} {
			gauge(m.device, float64(s.bytes), string(d.ID), s.state)
		}
	}
	for _, s := range []api.State{api.Starting, api.Awake, api.Draining, api.Asleep, api.Unhealthy} {
		gauge(m.instances, float64(l.instances[s]), string(s))
	}
	gauge(m.grants, float64(l.grants))
	for placement, share := range l.hot {
		gauge(m.hot, share, placement)
	}
	for _, r := range l.usage {
		c <- prometheus.MustNewConstMetric(m.held, prometheus.CounterValue, r.GPUSeconds, string(r.Function), r.Tenant, r.State)
		if r.Requests > 0 {
			c <- prometheus.MustNewConstMetric(m.tokens, prometheus.CounterValue, float64(r.Input), string(r.Function), r.Tenant, "input")
			c <- prometheus.MustNewConstMetric(m.tokens, prometheus.CounterValue, float64(r.Output), string(r.Function), r.Tenant, "output")
			c <- prometheus.MustNewConstMetric(m.cached, prometheus.CounterValue, float64(r.Cached), string(r.Function), r.Tenant)
		}
	}
	m.replicas.collect(gauge, l.replicas)
}

func (a *loop) levels() levels {
	now := a.now
	l := levels{devices: a.account(), instances: make(map[api.State]int), replicas: a.counts(now), hot: make(map[string]float64), usage: a.usage.Settled(time.Now())}
	for placement, c := range a.metrics.came {
		l.hot[placement] = float64(c.hot) / float64(c.all)
	}
	for _, i := range a.instances {
		l.instances[i.Status.State]++
		if i.Status.State == api.Asleep && i.Grant.Valid(now) {
			l.grants++
		}
	}
	return l
}
