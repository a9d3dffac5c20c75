package serve

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/engine"
)

// vLLM's names: gateways and dashboards know them.
const (
	vllm = "vllm:"
	ours = "rouse_engine_"
)

// In seconds: vLLM's, and finer ones for small models.
var (
	firstTokenBuckets = []float64{.001, .0025, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160}
	nextTokenBuckets  = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5}
	prefillBuckets    = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	requestBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960}
	tokenBuckets      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
)

type metrics struct {
	all              []prometheus.Collector
	firstToken       prometheus.Histogram
	nextToken        prometheus.Histogram
	request          prometheus.Histogram
	decode           prometheus.Histogram // from the first token to the last
	perToken         prometheus.Histogram // mean between a request's tokens
	outputToken      prometheus.Histogram // nextToken under the model server protocol's name
	prefillToken     prometheus.Histogram // to the first token, per prompt token
	promptTokens     prometheus.Histogram
	generationTokens prometheus.Histogram
	finished         map[engine.Finish]prometheus.Counter
	adapters         *adapterUse
}

// DescribeMetrics registers the metrics of a [Server].
func DescribeMetrics(r prometheus.Registerer) error {
	for _, c := range newMetrics(func() engine.Stats { return engine.Stats{} }, metricsConfig{}).all {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

type metricsConfig struct {
	model     string
	blockSize int // tokens
	prefix    bool
	atOnce    int // most adapters at once
}

func newMetrics(stats func() engine.Stats, cfg metricsConfig) *metrics {
	labels := prometheus.Labels{"model_name": cfg.model}
	theirs := prometheus.Labels{"model_name": cfg.model, "engine": "0"}
	m := &metrics{finished: map[engine.Finish]prometheus.Counter{}, adapters: newAdapterUse(theirs, cfg.atOnce)}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: vllm + name, Help: help, ConstLabels: theirs, Buckets: buckets})
		m.all = append(m.all, h)
		return h
	}
	m.firstToken = histogram("time_to_first_token_seconds", "Time from a request's parsed body to its first token.", firstTokenBuckets)
	m.nextToken = histogram("inter_token_latency_seconds", "Time between two tokens of a sequence.", nextTokenBuckets)
	m.request = histogram("e2e_request_latency_seconds", "Time from a request's parsed body to its last token.", requestBuckets)
	m.decode = histogram("request_decode_time_seconds", "Time from a sequence's first token to its last.", requestBuckets)
	m.perToken = histogram("request_time_per_output_token_seconds", "Mean time between the tokens of a sequence.", nextTokenBuckets)
	m.outputToken = histogram("time_per_output_token_seconds", "Time between two tokens of a sequence.", nextTokenBuckets)
	m.prefillToken = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "rouse_time_per_prefill_token_seconds", Help: "Time to a sequence's first token, by the tokens of its prompt.", ConstLabels: theirs, Buckets: prefillBuckets,
	})
	m.promptTokens = histogram("request_prompt_tokens", "Tokens of a request's prompt.", tokenBuckets)
	m.generationTokens = histogram("request_generation_tokens", "Tokens of a sequence.", tokenBuckets)
	finished := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: vllm + "request_success_total", Help: "Sequences that came to their end, by reason.", ConstLabels: theirs,
	}, []string{"finished_reason"})
	for _, f := range []engine.Finish{engine.FinishStop, engine.FinishLength} {
		m.finished[f] = finished.WithLabelValues(string(f))
	}
	m.all = append(m.all, m.prefillToken, finished, newEngineCollector(stats, cfg.blockSize, cfg.prefix, labels, theirs), m.adapters)
	return m
}

func (m *metrics) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.all...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
