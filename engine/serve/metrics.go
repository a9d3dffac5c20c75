package serve

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/engine"
)

// prefix begins the name of every metric; what follows is vLLM's name where vLLM has the same thing.
const prefix = "rouse_engine_"

// Buckets in seconds: vLLM's, with finer ones below, because small models are quick.
var (
	firstTokenBuckets = []float64{.001, .0025, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160}
	nextTokenBuckets  = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5}
	requestBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960}
)

// metrics are the server's own registry. It reads the engine's counters when it is asked.
type metrics struct {
	registry   *prometheus.Registry
	firstToken prometheus.Histogram
	nextToken  prometheus.Histogram
	request    prometheus.Histogram
	finished   map[engine.Finish]prometheus.Counter
}

func newMetrics(e *engine.Engine, model string) *metrics {
	labels := prometheus.Labels{"model_name": model}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, ConstLabels: labels, Buckets: buckets})
	}
	m := &metrics{
		registry:   prometheus.NewRegistry(),
		firstToken: histogram("time_to_first_token_seconds", "Time from a request's parsed body to its first token.", firstTokenBuckets),
		nextToken:  histogram("inter_token_latency_seconds", "Time between two tokens of a sequence.", nextTokenBuckets),
		request:    histogram("e2e_request_latency_seconds", "Time from a request's parsed body to its last token.", requestBuckets),
	}
	finished := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "request_success_total", Help: "Sequences that came to their end, by reason.", ConstLabels: labels,
	}, []string{"finished_reason"})
	m.finished = map[engine.Finish]prometheus.Counter{}
	for _, f := range []engine.Finish{engine.FinishStop, engine.FinishLength} {
		m.finished[f] = finished.WithLabelValues(string(f))
	}
	m.registry.MustRegister(m.firstToken, m.nextToken, m.request, finished, newEngineCollector(e, labels),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// level is one number of the engine's stats.
type level struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(engine.Stats) float64
}

// engineCollector shows the engine's stats, all of one moment.
type engineCollector struct {
	engine *engine.Engine
	levels []level
}

func newEngineCollector(e *engine.Engine, labels prometheus.Labels) *engineCollector {
	c := &engineCollector{engine: e}
	add := func(kind prometheus.ValueType, name, help string, of func(engine.Stats) float64) {
		c.levels = append(c.levels, level{prometheus.NewDesc(prefix+name, help, nil, labels), kind, of})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "num_requests_running", "Sequences that are being computed.", func(s engine.Stats) float64 { return float64(s.Running) })
	add(gauge, "num_requests_waiting", "Sequences that wait for a seat or for memory.", func(s engine.Stats) float64 { return float64(max(0, s.Open-s.Running)) })
	add(gauge, "kv_cache_usage_perc", "Share of the KV memory that is in use, 0 to 1.", func(s engine.Stats) float64 { return float64(s.BlocksUsed) / float64(s.BlocksTotal) })
	add(gauge, "sleep_level", "0 awake, 1 or 2 asleep.", func(s engine.Stats) float64 { return float64(s.Level) })
	add(gauge, "healthy", "1, or 0 if the last step failed.", func(s engine.Stats) float64 {
		if s.Failure != nil {
			return 0
		}
		return 1
	})
	add(gauge, "awake", "1 if requests are accepted, else 0.", func(s engine.Stats) float64 {
		if s.State != api.Awake {
			return 0
		}
		return 1
	})
	add(counter, "prompt_tokens_total", "Prompt tokens of requests that have begun to answer.", func(s engine.Stats) float64 { return float64(s.PromptTokens) })
	add(counter, "generation_tokens_total", "Tokens generated.", func(s engine.Stats) float64 { return float64(s.GeneratedTokens) })
	add(counter, "num_preemptions_total", "Sequences sent back to the queue for want of memory.", func(s engine.Stats) float64 { return float64(s.Preemptions) })
	add(counter, "steps_total", "Forward passes.", func(s engine.Stats) float64 { return float64(s.Steps) })
	add(counter, "computed_tokens_total", "Tokens that went through the model, computed again after preemption included.", func(s engine.Stats) float64 { return float64(s.ComputedTokens) })
	return c
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, l := range c.levels {
		ch <- l.desc
	}
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.engine.Stats()
	for _, l := range c.levels {
		ch <- prometheus.MustNewConstMetric(l.desc, l.kind, l.of(s))
	}
}

// meter measures one request. Its handler's goroutine owns it.
type meter struct {
	metrics *metrics
	began   time.Time
	last    map[int]time.Time // of each sequence's newest token
}

func (m *metrics) meter() *meter {
	return &meter{metrics: m, began: time.Now(), last: map[int]time.Time{}}
}

// event counts an event.
func (m *meter) event(ev *engine.Event) {
	now := time.Now()
	if last, ok := m.last[ev.Index]; ok {
		m.metrics.nextToken.Observe(now.Sub(last).Seconds())
	} else {
		m.metrics.firstToken.Observe(now.Sub(m.began).Seconds())
	}
	m.last[ev.Index] = now
	if ev.Finish != "" {
		m.metrics.request.Observe(now.Sub(m.began).Seconds())
		m.metrics.finished[ev.Finish].Inc()
	}
}
