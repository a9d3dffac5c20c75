package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// protocol makes the metrics of the model server protocol when they are read.
type protocol struct {
	cfg     Config
	metrics *Metrics
	scraper *scraper

	running, waiting, kv, oldKV, cache, lora           *prometheus.Desc
	tokens, queued, capacity, prompt, generated, fresh *prometheus.Desc
}

func newProtocol(cfg Config, model prometheus.Labels, m *Metrics) *protocol {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, model)
	}
	return &protocol{
		cfg: cfg, metrics: m, scraper: &scraper{read: cfg.Signals},
		running:   desc("vllm:num_requests_running", "Requests that the runtime works on."),
		waiting:   desc("vllm:num_requests_waiting", "Requests that the runtime has queued."),
		kv:        desc("vllm:kv_cache_usage_perc", "Share of the KV cache that is in use, 0 to 1."),
		oldKV:     desc("vllm:gpu_cache_usage_perc", "The same as vllm:kv_cache_usage_perc, for older readers."),
		cache:     desc("vllm:cache_config_info", "Size and number of the KV cache's blocks; 0 where unknown.", "block_size", "num_gpu_blocks"),
		lora:      desc("vllm:lora_requests_info", "Adapters of the requests, at the time that is the value.", "max_lora", "running_lora_adapters", "waiting_lora_adapters"),
		tokens:    desc("vllm:num_tokens_running", "Tokens of the requests that the runtime works on."),
		queued:    desc("vllm:num_tokens_waiting", "Tokens of the prompts that wait for their first token."),
		capacity:  desc("vllm:max_token_capacity", "Tokens that the KV cache holds; 0 where unknown."),
		prompt:    desc("vllm:prompt_tokens_total", "Tokens of prompts."),
		generated: desc("vllm:generation_tokens_total", "Tokens generated."),
		fresh:     desc("rouse_function_signals", "1 where these values are the runtime's own, 0 where the function counted."),
	}
}

// Describe implements prometheus.Collector.
func (p *protocol) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		p.running, p.waiting, p.kv, p.oldKV, p.cache, p.lora, p.tokens, p.queued, p.capacity, p.prompt, p.generated, p.fresh,
	} {
		ch <- d
	}
}

// read returns all values as they are now. own says whether they are the runtime's.
func (p *protocol) read() (v runtime.Signals, load proxy.Load, own bool) {
	status, load := p.cfg.Status(), p.cfg.Load()
	signals := unknown
	if status.State == api.Awake || status.State == api.Draining {
		signals, own = p.scraper.signals()
	} else {
		p.scraper.forget()
	}
	return p.values(status, load, signals), load, own
}

// Collect implements prometheus.Collector.
func (p *protocol) Collect(ch chan<- prometheus.Metric) {
	v, load, found := p.read()
	own := 0.0
	if found {
		own = 1
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(p.running, v.Running)
	gauge(p.waiting, v.Waiting)
	gauge(p.kv, v.KVUsage)
	gauge(p.oldKV, v.KVUsage)
	gauge(p.cache, 1, count(v.BlockTokens), count(v.Blocks))
	gauge(p.lora, float64(time.Now().UnixMilli())/1000, strconv.Itoa(v.MaxAdapters), strings.Join(v.RunningAdapters, ","), strings.Join(v.WaitingAdapters, ","))
	gauge(p.tokens, float64(load.Tokens-load.QueuedTokens))
	gauge(p.queued, float64(load.QueuedTokens))
	gauge(p.capacity, v.BlockTokens*v.Blocks)
	gauge(p.fresh, own)
	ch <- prometheus.MustNewConstMetric(p.prompt, prometheus.CounterValue, v.PromptTokens)
	ch <- prometheus.MustNewConstMetric(p.generated, prometheus.CounterValue, v.GeneratedTokens)
}

// unknown are the signals of a runtime that says nothing.
var unknown = runtime.Signals{Running: -1, Waiting: -1, KVUsage: -1, BlockTokens: -1, Blocks: -1, PromptTokens: -1, GeneratedTokens: -1}

// What a runtime can mean; more is as good as nothing: what decides by it would decide
// by a fault of somebody's.
const (
	mostRequests = 1e6
	mostTokens   = 1e15
	mostUsage    = 1.5 // a share, and what rounding and overcommitment add
)

// values fills in what the runtime did not say.
func (p *protocol) values(status api.InstanceStatus, load proxy.Load, s runtime.Signals) runtime.Signals {
	or := func(v *float64, most, otherwise float64) {
		if !(*v >= 0 && *v <= most) { // NaN too
			*v = otherwise
		}
	}
	or(&s.Running, mostRequests, float64(load.Requests))
	or(&s.Waiting, mostRequests, 0)
	or(&s.BlockTokens, mostTokens, 0)
	or(&s.Blocks, mostTokens, 0)
	usage := 0.0
	switch capacity := s.BlockTokens * s.Blocks; {
	case capacity > 0:
		usage = float64(load.Tokens) / capacity
	case status.Concurrency > 0:
		usage = float64(load.Requests) / float64(status.Concurrency)
	}
	or(&s.KVUsage, mostUsage, usage)
	s.KVUsage = min(s.KVUsage, 1)
	prompt, generated := p.scraper.totals()
	or(&s.PromptTokens, mostTokens, prompt)
	or(&s.GeneratedTokens, mostTokens, generated)
	or(&s.PromptTokens, mostTokens, float64(p.metrics.prompt.Load()))
	or(&s.GeneratedTokens, mostTokens, float64(p.metrics.generated.Load()))
	if s.FirstTokens == 0 { // of streams only: the function can't see into the others
		s.FirstTokens = float64(p.metrics.firstTokens.Load())
		s.FirstTokenSeconds = time.Duration(p.metrics.firstTokenTime.Load()).Seconds()
	}
	if s.RunningAdapters == nil {
		for _, name := range load.Adapters {
			s.RunningAdapters = append(s.RunningAdapters, string(name))
		}
	}
	if s.MaxAdapters <= 0 {
		s.MaxAdapters = len(status.Adapters)
	}
	return s
}

// count writes a number of things.
func count(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
