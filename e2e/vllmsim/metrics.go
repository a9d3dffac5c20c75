package vllmsim

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/e2e/vllmsim/batch"
)

// metrics are what a surface publishes. Its engine's lock guards the totals; the
// registry guards itself.
type metrics struct {
	cfg      Config
	registry *prometheus.Registry
	labels   prometheus.Labels

	gauges   map[string]prometheus.Gauge
	counters map[string]prometheus.Counter
	times    map[string]prometheus.Histogram
	success  *prometheus.CounterVec
	loras    *prometheus.GaugeVec
	lastLoRA string
	seen     batch.Counts
	// Totals for the rates that llama-server publishes.
	prompt, generated int
	decodes, busy     int
	prefillTime       time.Duration
	decodeTime        time.Duration
}

var (
	// latencyBuckets, firstTokenBuckets and tokenBuckets are vLLM's, in seconds.
	latencyBuckets    = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	firstTokenBuckets = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets      = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	stepBuckets       = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

func newMetrics(cfg Config) *metrics {
	m := &metrics{
		cfg: cfg, registry: prometheus.NewRegistry(),
		gauges: map[string]prometheus.Gauge{}, counters: map[string]prometheus.Counter{}, times: map[string]prometheus.Histogram{},
	}
	// What no real server has: the tests' own view of what went wrong.
	m.counter("stale", "vllmsim:stale_prefix_hits_total", "Tokens that the prefix cache had from weights that are gone.")
	switch cfg.Surface {
	case SGLang:
		m.sglang()
	case LlamaCpp:
		m.llamacpp()
	case VLLM, RayServe:
		m.vllm()
	}
	return m
}

func (m *metrics) gauge(key, name, help string) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: m.labels})
	m.registry.MustRegister(g)
	m.gauges[key] = g
}

func (m *metrics) counter(key, name, help string) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.labels})
	m.registry.MustRegister(c)
	m.counters[key] = c
}

func (m *metrics) histogram(key, name, help string, buckets []float64) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: m.labels, Buckets: buckets})
	m.registry.MustRegister(h)
	m.times[key] = h
}

func (m *metrics) vllm() {
	m.labels = prometheus.Labels{"model_name": m.cfg.Names[0], "engine": "0"}
	usage, queries, hits, between := "vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:inter_token_latency_seconds"
	if m.cfg.OldMetrics {
		usage, queries, hits, between = "vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total", "vllm:time_per_output_token_seconds"
	}
	m.gauge("running", "vllm:num_requests_running", "Number of requests in model execution batches.")
	m.gauge("waiting", "vllm:num_requests_waiting", "Number of requests waiting to be processed.")
	m.gauge("usage", usage, "KV-cache usage. 1 means 100 percent usage.")
	m.counter("queries", queries, "Prefix cache queries, in terms of number of queried tokens.")
	m.counter("hits", hits, "Prefix cache hits, in terms of number of cached tokens.")
	if m.cfg.Offload.Bytes > 0 {
		m.counter("external", "vllm:external_prefix_cache_hits_total", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.")
	}
	m.counter("preemptions", "vllm:num_preemptions_total", "Cumulative number of preemption from the engine.")
	m.counter("prompt", "vllm:prompt_tokens_total", "Number of prefill tokens processed.")
	m.counter("generated", "vllm:generation_tokens_total", "Number of generation tokens processed.")
	m.histogram("step", "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", stepBuckets)
	m.histogram("first", "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", firstTokenBuckets)
	m.histogram("between", between, "Histogram of inter-token latency in seconds.", tokenBuckets)
	if !m.cfg.OldMetrics {
		m.histogram("per output token", "vllm:request_time_per_output_token_seconds", "Histogram of time per output token of a request.", tokenBuckets)
	}
	m.histogram("e2e", "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", latencyBuckets)
	m.histogram("queue", "vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", latencyBuckets)
	m.histogram("inference", "vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", latencyBuckets)
	m.histogram("prefill", "vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", latencyBuckets)
	m.histogram("decode", "vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", latencyBuckets)
	m.histogram("prompt tokens", "vllm:request_prompt_tokens", "Number of prefill tokens processed.", buckets125(m.cfg.MaxModelLen))
	m.histogram("output tokens", "vllm:request_generation_tokens", "Number of generation tokens processed.", buckets125(m.cfg.MaxModelLen))
	m.histogram("n", "vllm:request_params_n", "Histogram of the n request parameter.", []float64{1, 2, 5, 10, 20})
	m.histogram("max tokens", "vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", buckets125(m.cfg.MaxModelLen))
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total", Help: "Count of successfully processed requests.", ConstLabels: m.labels}, []string{"finished_reason"})
	m.registry.MustRegister(m.success)
	for _, reason := range []string{"stop", "length", "abort"} {
		m.success.WithLabelValues(reason)
	}
	if m.cfg.LoRA {
		m.loras = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vllm:lora_requests_info", Help: "Running stats on lora requests."},
			[]string{"max_lora", "waiting_lora_adapters", "running_lora_adapters"})
		m.registry.MustRegister(m.loras)
	}
}

func (m *metrics) sglang() {
	m.labels = prometheus.Labels{"model_name": m.cfg.Names[0]}
	m.gauge("running", "sglang:num_running_reqs", "The number of running requests.")
	m.gauge("waiting", "sglang:num_queue_reqs", "The number of requests in the waiting queue.")
	m.gauge("usage", "sglang:token_usage", "The token usage.")
	m.gauge("used tokens", "sglang:num_used_tokens", "The number of used tokens.")
	m.gauge("hit rate", "sglang:cache_hit_rate", "The prefix cache hit rate.")
	m.gauge("capacity", "sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.")
	m.counter("prompt", "sglang:prompt_tokens_total", "Number of prefill tokens processed.")
	m.counter("generated", "sglang:generation_tokens_total", "Number of generation tokens processed.")
	m.counter("hits", "sglang:cached_tokens_total", "Number of cached prompt tokens.")
	m.counter("requests", "sglang:num_requests_total", "Number of requests processed.")
	m.counter("aborted", "sglang:num_aborted_requests_total", "Number of requests aborted.")
	m.histogram("first", "sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", firstTokenBuckets)
	m.histogram("between", "sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", tokenBuckets)
	m.histogram("e2e", "sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds.", latencyBuckets)
}

func (m *metrics) llamacpp() {
	m.counter("prompt", "llamacpp:prompt_tokens_total", "Number of prompt tokens processed.")
	m.counter("prompt seconds", "llamacpp:prompt_seconds_total", "Prompt process time.")
	m.counter("generated", "llamacpp:tokens_predicted_total", "Number of generation tokens processed.")
	m.counter("generated seconds", "llamacpp:tokens_predicted_seconds_total", "Predict process time.")
	m.counter("decodes", "llamacpp:n_decode_total", "Total number of llama_decode() calls.")
	m.gauge("busy", "llamacpp:n_busy_slots_per_decode", "Average number of busy slots per llama_decode() call.")
	m.gauge("prompt rate", "llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s.")
	m.gauge("generated rate", "llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s.")
	m.gauge("running", "llamacpp:requests_processing", "Number of requests processing.")
	m.gauge("waiting", "llamacpp:requests_deferred", "Number of requests deferred.")
	if m.cfg.OldMetrics { // gone since 2025
		m.gauge("usage", "llamacpp:kv_cache_usage_ratio", "KV-cache usage. 1 means 100 percent usage.")
		m.gauge("used tokens", "llamacpp:kv_cache_tokens", "KV-cache tokens.")
	}
}

// opened tells the size of the KV cache.
func (m *metrics) opened(blocks int) {
	info := func(name string, labels prometheus.Labels) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Information of the LLMEngine CacheConfig", ConstLabels: labels})
		g.Set(1)
		m.registry.MustRegister(g)
	}
	size, count := strconv.Itoa(m.cfg.BlockTokens), strconv.Itoa(blocks)
	switch m.cfg.Surface {
	case VLLM, RayServe:
		info("vllm:cache_config_info", prometheus.Labels{
			"block_size": size, "num_gpu_blocks": count, "engine": "0", "cache_dtype": "auto",
			"enable_prefix_caching":  strconv.FormatBool(!m.cfg.NoPrefixCache),
			"gpu_memory_utilization": strconv.FormatFloat(m.cfg.Utilization, 'g', -1, 64),
		})
	case SGLang:
		info("sglang:cache_config_info", prometheus.Labels{"page_size": size, "num_pages": count})
		m.set("capacity", float64(blocks*m.cfg.BlockTokens))
	case LlamaCpp:
	}
}

func (m *metrics) set(key string, v float64) {
	if g := m.gauges[key]; g != nil {
		g.Set(v)
	}
}

func (m *metrics) add(key string, v float64) {
	if c := m.counters[key]; c != nil {
		c.Add(v)
	}
}

func (m *metrics) observe(key string, v float64) {
	if h := m.times[key]; h != nil {
		h.Observe(v)
	}
}

// load publishes what waits and what runs.
func (m *metrics) load(b *batch.Batch) {
	l, c := b.Load(), b.Counts()
	m.set("running", float64(l.Running))
	m.set("waiting", float64(l.Waiting))
	m.set("usage", l.Usage)
	m.set("used tokens", float64(l.RunningTokens))
	m.add("queries", float64(c.Queries-m.seen.Queries))
	m.add("hits", float64(c.Hits-m.seen.Hits))
	if m.cfg.Offload.Bytes > 0 {
		m.add("external", float64(c.External-m.seen.External))
	}
	m.add("stale", float64(c.Stale-m.seen.Stale))
	m.add("preemptions", float64(c.Preemptions-m.seen.Preemptions))
	m.seen = c
	if c.Queries > 0 {
		m.set("hit rate", float64(c.Hits)/float64(c.Queries))
	}
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

// step counts what one step has computed.
func (m *metrics) step(w batch.Work) {
	m.observe("step", float64(w.Prefill+w.Decode))
	m.add("decodes", 1)
	m.add("prompt seconds", (time.Duration(w.Prefill) * m.cfg.Timing.Prefill).Seconds())
	m.decodes++
	m.busy += w.Decode
	m.set("busy", float64(m.busy)/float64(m.decodes))
	m.prompt += w.Prefill
	m.prefillTime += time.Duration(w.Prefill) * m.cfg.Timing.Prefill
	if m.prefillTime > 0 {
		m.set("prompt rate", float64(m.prompt)/m.prefillTime.Seconds())
	}
	m.generated += w.Decode
	if w.Decode > 0 {
		d := m.cfg.Timing.Step + time.Duration(w.Decode)*m.cfg.Timing.Sequence
		m.decodeTime += d
		m.add("generated seconds", d.Seconds())
		m.set("generated rate", float64(m.generated)/m.decodeTime.Seconds())
	}
}

// token counts one token of a job.
func (m *metrics) token(j *job, now time.Time) {
	m.add("generated", 1)
	if j.first.IsZero() {
		m.add("prompt", float64(j.seq.Prompt))
		m.observe("first", now.Sub(j.arrived).Seconds())
		return
	}
	m.observe("between", now.Sub(j.last).Seconds())
}

// finished counts a job that is over.
func (m *metrics) finished(j *job, now time.Time) {
	m.add("requests", 1)
	if j.reason == "abort" {
		m.add("aborted", 1)
	}
	if m.success != nil {
		m.success.WithLabelValues(j.reason).Inc()
	}
	m.observe("e2e", now.Sub(j.arrived).Seconds())
	if j.begun.IsZero() {
		m.observe("queue", now.Sub(j.arrived).Seconds())
		return
	}
	m.observe("queue", j.begun.Sub(j.arrived).Seconds())
	m.observe("inference", now.Sub(j.begun).Seconds())
	if !j.first.IsZero() {
		m.observe("prefill", j.first.Sub(j.begun).Seconds())
		m.observe("decode", j.last.Sub(j.first).Seconds())
		if j.seq.Generated > 1 {
			m.observe("per output token", j.last.Sub(j.first).Seconds()/float64(j.seq.Generated-1))
		}
	}
	m.observe("prompt tokens", float64(j.seq.Prompt))
	m.observe("output tokens", float64(j.seq.Generated))
	m.observe("n", float64(j.n))
	m.observe("max tokens", float64(j.max))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// buckets125 are 1, 2, 5, 10 … up to a maximum.
func buckets125(most int) (buckets []float64) {
	for ten := 1; ; ten *= 10 {
		for _, n := range []int{1, 2, 5} {
			if n*ten > most {
				return buckets
			}
			buckets = append(buckets, float64(n*ten))
		}
	}
}
