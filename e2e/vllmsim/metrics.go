package vllmsim

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricNames maps our own names of metrics to a server's.
type metricNames struct {
	labels                    prometheus.Labels
	gauges, counters, seconds map[string]string
	// has the size and number of the cache's blocks as labels of these names
	info, size, count string
}

func vllmMetrics(c Config) metricNames {
	usage, between, perToken := "vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds"
	if c.OldMetrics {
		usage, between, perToken = "vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds", ""
	}
	return metricNames{
		labels:   prometheus.Labels{"model_name": c.Names[0], "engine": "0"},
		gauges:   map[string]string{"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting", "usage": usage},
		counters: map[string]string{"prompt": "vllm:prompt_tokens_total", "generated": "vllm:generation_tokens_total"},
		seconds: map[string]string{"first": "vllm:time_to_first_token_seconds", "between": between, "per token": perToken, "whole": "vllm:e2e_request_latency_seconds",
			"queue": "vllm:request_queue_time_seconds", "inference": "vllm:request_inference_time_seconds", "prefill": "vllm:request_prefill_time_seconds",
			"decode": "vllm:request_decode_time_seconds", "prompt tokens": "vllm:request_prompt_tokens"},
		info: "vllm:cache_config_info", size: "block_size", count: "num_gpu_blocks",
	}
}

func sglangMetrics(c Config) metricNames {
	return metricNames{
		labels: prometheus.Labels{"model_name": c.Names[0]},
		gauges: map[string]string{"running": "sglang:num_running_reqs", "waiting": "sglang:num_queue_reqs", "usage": "sglang:token_usage",
			"used tokens": "sglang:num_used_tokens", "capacity": "sglang:max_total_num_tokens"},
		counters: map[string]string{"prompt": "sglang:prompt_tokens_total", "generated": "sglang:generation_tokens_total"},
		seconds: map[string]string{"first": "sglang:time_to_first_token_seconds", "between": "sglang:inter_token_latency_seconds",
			"whole": "sglang:e2e_request_latency_seconds"},
		info: "sglang:cache_config_info", size: "page_size", count: "num_pages",
	}
}

func llamaMetrics(Config) metricNames {
	return metricNames{
		gauges:   map[string]string{"running": "llamacpp:requests_processing", "waiting": "llamacpp:requests_deferred"},
		counters: map[string]string{"prompt": "llamacpp:prompt_tokens_total", "generated": "llamacpp:tokens_predicted_total"},
	}
}

// The engine's lock guards lastLoRA.
type metrics struct {
	cfg      Config
	names    metricNames
	registry *prometheus.Registry
	gauges   map[string]prometheus.Gauge
	counters map[string]prometheus.Counter
	times    map[string]prometheus.Histogram
	loras    *prometheus.GaugeVec
	lastLoRA string
}

// about vLLM's, in seconds
var (
	buckets = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 240, 960, 7680}
	tokens  = prometheus.ExponentialBuckets(1, 2, 16)
)

func newMetrics(cfg Config) *metrics {
	m := &metrics{
		cfg: cfg, names: servers[cfg.Surface].metrics(cfg), registry: prometheus.NewRegistry(),
		gauges: map[string]prometheus.Gauge{}, counters: map[string]prometheus.Counter{}, times: map[string]prometheus.Histogram{},
	}
	for key, name := range m.names.gauges {
		m.gauges[key] = prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: m.names.labels})
		m.registry.MustRegister(m.gauges[key])
	}
	for key, name := range m.names.counters {
		m.counters[key] = prometheus.NewCounter(prometheus.CounterOpts{Name: name, ConstLabels: m.names.labels})
		m.registry.MustRegister(m.counters[key])
	}
	for key, name := range m.names.seconds {
		if name == "" {
			continue
		}
		opts := prometheus.HistogramOpts{Name: name, ConstLabels: m.names.labels, Buckets: buckets}
		if key == "prompt tokens" {
			opts.Buckets = tokens
		}
		m.times[key] = prometheus.NewHistogram(opts)
		m.registry.MustRegister(m.times[key])
	}
	if cfg.LoRA && cfg.Surface == VLLM {
		m.loras = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vllm:lora_requests_info"}, []string{"max_lora", "waiting_lora_adapters", "running_lora_adapters"})
		m.registry.MustRegister(m.loras)
	}
	return m
}

func (m *metrics) opened(blocks int) {
	m.set("capacity", float64(blocks*blockTokens))
	if m.names.info == "" {
		return
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: m.names.info, ConstLabels: prometheus.Labels{m.names.size: strconv.Itoa(blockTokens), m.names.count: strconv.Itoa(blocks)}})
	info.Set(1)
	m.registry.MustRegister(info)
}

func (m *metrics) set(key string, v float64) {
	if g := m.gauges[key]; g != nil {
		g.Set(v)
	}
}

func (m *metrics) observe(key string, v float64) {
	if h := m.times[key]; h != nil {
		h.Observe(v)
	}
}

func (m *metrics) load(b *Batch) {
	l := b.Load()
	m.set("running", float64(l.Running))
	m.set("waiting", float64(l.Waiting))
	m.set("usage", l.Usage)
	m.set("used tokens", float64(l.RunningTokens))
	if m.loras == nil {
		return
	}
	// As in vLLM a series stays when its adapters change: the one with the newest time counts.
	running, waiting := strings.Join(l.RunningAdapters, ","), strings.Join(l.WaitingAdapters, ",")
	if now := waiting + "|" + running; now != m.lastLoRA {
		m.lastLoRA = now
		m.loras.WithLabelValues(strconv.Itoa(m.cfg.MaxLoRAs), waiting, running).Set(float64(time.Now().UnixNano()) / 1e9)
	}
}

func (m *metrics) token(j *job, now time.Time) {
	m.counters["generated"].Inc()
	if j.first.IsZero() {
		m.counters["prompt"].Add(float64(j.seq.Prompt))
		m.observe("first", now.Sub(j.arrived).Seconds())
		return
	}
	m.observe("between", now.Sub(j.last).Seconds())
}

func (m *metrics) finished(j *job, now time.Time) {
	m.observe("whole", now.Sub(j.arrived).Seconds())
	if j.begun.IsZero() {
		m.observe("queue", now.Sub(j.arrived).Seconds())
		return
	}
	m.observe("queue", j.begun.Sub(j.arrived).Seconds())
	m.observe("inference", now.Sub(j.begun).Seconds())
	m.observe("prompt tokens", float64(j.seq.Prompt))
	if j.first.IsZero() {
		return
	}
	m.observe("prefill", j.first.Sub(j.begun).Seconds())
	m.observe("decode", j.last.Sub(j.first).Seconds())
	if j.seq.Generated > 1 {
		m.observe("per token", j.last.Sub(j.first).Seconds()/float64(j.seq.Generated-1))
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
