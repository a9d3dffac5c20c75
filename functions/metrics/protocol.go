package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

type protocol struct {
	cfg     Config
	metrics *Metrics
	scraper *scraper

	running, waiting, kv, oldKV, cache, lora    *prometheus.Desc
	tokens, queued, capacity, prompt, generated *prometheus.Desc
	times                                       []series
}

type series struct {
	name string // of runtime.Signals.Times
	desc *prometheus.Desc
	own  prometheus.Histogram // measured by the function; nil: not possible
}

func newProtocol(cfg Config, model prometheus.Labels, m *Metrics) *protocol {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, model)
	}
	p := &protocol{
		cfg: cfg, metrics: m, scraper: &scraper{read: cfg.Signals},
		running:   desc("vllm:num_requests_running", "Requests that the runtime works on."),
		waiting:   desc("vllm:num_requests_waiting", "Requests that the runtime has queued, or that wait for their adapter's place in it."),
		kv:        desc("vllm:kv_cache_usage_perc", "Share of the KV cache that is in use, 0 to 1."),
		oldKV:     desc("vllm:gpu_cache_usage_perc", "The same as vllm:kv_cache_usage_perc, for older readers."),
		cache:     desc("vllm:cache_config_info", "Size and number of the KV cache's blocks.", "block_size", "num_gpu_blocks"),
		lora:      desc("vllm:lora_requests_info", "Adapters of the requests, at the time that is the value.", "max_lora", "running_lora_adapters", "waiting_lora_adapters"),
		tokens:    desc("vllm:num_tokens_running", "Tokens in the KV cache of the requests that the runtime works on."),
		queued:    desc("vllm:num_tokens_waiting", "Tokens of the requests that the runtime has queued."),
		capacity:  desc("vllm:max_token_capacity", "Tokens that the KV cache holds."),
		prompt:    desc("vllm:prompt_tokens_total", "Tokens of prompts."),
		generated: desc("vllm:generation_tokens_total", "Tokens generated."),
	}
	for _, own := range []struct {
		name string
		h    prometheus.Histogram
	}{
		{runtime.FirstToken, m.firstToken}, {runtime.PerOutputToken, m.decode}, {runtime.PerRequestToken, m.request}, {runtime.PerPrefillToken, m.prefill},
	} {
		p.times = append(p.times, series{own.name, own.h.Desc(), own.h})
	}
	for _, theirs := range []struct{ name, help string }{
		{runtime.InterToken, "Time between two tokens of a request."}, {runtime.WholeRequest, "Time of a request in the runtime."},
		{runtime.QueueTime, "Time of a request before the runtime worked on it."}, {runtime.InferenceTime, "Time of a request while the runtime worked on it."},
		{runtime.PrefillTime, "Time of a request's prompt."}, {runtime.DecodeTime, "Time of a request from its first token to its last."},
	} {
		p.times = append(p.times, series{theirs.name, desc(theirs.name, theirs.help), nil})
	}
	return p
}

func (p *protocol) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		p.running, p.waiting, p.kv, p.oldKV, p.cache, p.lora, p.tokens, p.queued, p.capacity, p.prompt, p.generated,
	} {
		ch <- d
	}
	for _, s := range p.times {
		ch <- s.desc
	}
}

// read does not count what waits for an adapter's place.
func (p *protocol) read() runtime.Signals {
	status := p.cfg.Status()
	signals := runtime.Unknown()
	if status.State == api.Awake || status.State == api.Draining && status.Running > 0 { // else it may fall asleep now
		signals, _ = p.scraper.signals()
	} else {
		p.scraper.forget()
	}
	return p.values(status, p.cfg.Load(), signals)
}

func (p *protocol) Collect(ch chan<- prometheus.Metric) {
	v := p.read()
	for _, a := range p.cfg.Load().Held {
		v.Waiting++
		if name := string(a); !slices.Contains(slices.Concat(v.RunningAdapters, v.WaitingAdapters), name) {
			v.WaitingAdapters = append(v.WaitingAdapters, name)
		}
	}
	slices.Sort(v.WaitingAdapters)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(p.running, v.Running)
	gauge(p.waiting, v.Waiting)
	gauge(p.kv, v.KVUsage)
	gauge(p.oldKV, v.KVUsage)
	gauge(p.tokens, v.Tokens)
	gauge(p.queued, v.QueuedTokens)
	if v.BlockTokens > 0 && v.Blocks > 0 {
		gauge(p.cache, 1, count(v.BlockTokens), count(v.Blocks))
	}
	if v.Capacity > 0 {
		gauge(p.capacity, v.Capacity)
	}
	if v.MaxAdapters > 0 {
		gauge(p.lora, float64(time.Now().UnixMilli())/1000, strconv.Itoa(v.MaxAdapters), strings.Join(v.RunningAdapters, ","), strings.Join(v.WaitingAdapters, ","))
	}
	ch <- prometheus.MustNewConstMetric(p.prompt, prometheus.CounterValue, v.PromptTokens)
	ch <- prometheus.MustNewConstMetric(p.generated, prometheus.CounterValue, v.GeneratedTokens)
	for _, s := range p.times {
		if h, theirs := v.Times[s.name]; theirs {
			ch <- prometheus.MustNewConstHistogram(s.desc, h.Count, h.Sum, h.Buckets)
		} else if s.own != nil && p.metrics.measured.Load() {
			ch <- s.own
		}
	}
}

func count(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// The largest plausible values; a larger one is ignored.
const (
	mostRequests = 1e6
	mostTokens   = 1e15
	mostUsage    = 1.5 // a share, plus rounding and overcommitment
)

func or(v *float64, most, otherwise float64) {
	if !(*v >= 0 && *v <= most) { // NaN too
		*v = otherwise
	}
}

// values merges the runtime's present answer, s; its last answer, for values that a sleep does not change; and the function's own counts.
// An unknown size stays negative.
func (p *protocol) values(status api.InstanceStatus, load proxy.Load, s runtime.Signals) runtime.Signals {
	last := p.scraper.remembered()
	for _, v := range []struct{ now, last *float64 }{
		{&s.BlockTokens, &last.BlockTokens}, {&s.Blocks, &last.Blocks}, {&s.Capacity, &last.Capacity},
		{&s.PromptTokens, &last.PromptTokens}, {&s.GeneratedTokens, &last.GeneratedTokens},
	} {
		or(v.last, mostTokens, -1)
		or(v.now, mostTokens, *v.last)
	}
	if s.Capacity <= 0 && s.BlockTokens > 0 && s.Blocks > 0 {
		s.Capacity = s.BlockTokens * s.Blocks
	}
	if s.Times == nil {
		s.Times = last.Times
	}
	if s.MaxAdapters <= 0 {
		s.MaxAdapters = last.MaxAdapters
	}
	or(&s.PromptTokens, mostTokens, float64(p.metrics.prompt.Load()))
	or(&s.GeneratedTokens, mostTokens, float64(p.metrics.generated.Load()))
	or(&s.Running, mostRequests, float64(load.Requests))
	or(&s.Waiting, mostRequests, 0)
	tokens(&s, status, load)
	s.RunningAdapters, s.WaitingAdapters = atWork(status, load, s)
	return s
}

// tokens sets the use of the KV cache and the waiting tokens. If the runtime reports its queued requests, that many of the unanswered
// ones count as queued.
func tokens(s *runtime.Signals, status api.InstanceStatus, load proxy.Load) {
	queued := 0.0
	if load.Queued > 0 {
		queued = float64(load.QueuedTokens) * min(1, s.Waiting/float64(load.Queued))
	}
	or(&s.QueuedTokens, mostTokens, queued)
	running, usage := max(0, float64(load.Tokens)-queued), 0.0
	switch {
	case s.Capacity > 0:
		usage = running / s.Capacity
	case status.Concurrency > 0:
		usage = float64(load.Requests) / float64(status.Concurrency)
	}
	or(&s.KVUsage, mostUsage, usage)
	s.KVUsage = min(s.KVUsage, 1)
	or(&s.Tokens, mostTokens, running)
	if s.Capacity > 0 {
		s.Tokens = min(s.Tokens, s.Capacity)
	}
}

// atWork returns the adapters that running requests use, and those that waiting requests need. The runtime's lists may be old, or list
// all loaded adapters (vLLM fills both from one, and does not empty them). So they count only
//
//  1. for adapters of requests that are in the runtime: whether they wait;
//  2. for adapters that the function does not know, while requests run.
func atWork(status api.InstanceStatus, load proxy.Load, s runtime.Signals) (running, waiting []string) {
	for _, a := range load.Adapters { // 1.
		name := string(a)
		if s.Waiting > 0 && slices.Contains(s.WaitingAdapters, name) && !slices.Contains(s.RunningAdapters, name) {
			waiting = append(waiting, name)
			continue
		}
		running = append(running, name)
	}
	foreign := func(names []string) (found []string) { // 2.
		for _, name := range names {
			if !slices.Contains(status.Adapters, api.ModelName(name)) && !slices.Contains(load.Adapters, api.ModelName(name)) {
				found = append(found, name)
			}
		}
		return found
	}
	if s.Running > 0 {
		running = append(running, foreign(s.RunningAdapters)...)
	}
	if s.Waiting > 0 {
		waiting = append(waiting, foreign(s.WaitingAdapters)...)
	}
	slices.Sort(running)
	return running, waiting
}
