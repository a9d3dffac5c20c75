package serve

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/engine"
)

type level struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(engine.Stats) float64
}

// engineCollector exports one snapshot of the engine's stats.
type engineCollector struct {
	stats     func() engine.Stats
	blockSize int
	levels    []level
	cache     *prometheus.Desc
	prefix    bool
}

func newEngineCollector(stats func() engine.Stats, blockSize int, prefix bool, labels, theirs prometheus.Labels) *engineCollector {
	c := &engineCollector{stats: stats, blockSize: blockSize, prefix: prefix}
	c.cache = prometheus.NewDesc(vllm+"cache_config_info", "The KV memory; num_gpu_blocks is vLLM's name for blocks on any device.",
		[]string{"block_size", "num_gpu_blocks", "enable_prefix_caching"}, theirs)
	named := func(prefix string, labels prometheus.Labels) func(prometheus.ValueType, string, string, func(engine.Stats) float64) {
		return func(kind prometheus.ValueType, name, help string, of func(engine.Stats) float64) {
			c.levels = append(c.levels, level{prometheus.NewDesc(prefix+name, help, nil, labels), kind, of})
		}
	}
	known, own := named(vllm, theirs), named(ours, labels)
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	known(gauge, "num_requests_running", "Sequences that are being computed.", func(s engine.Stats) float64 { return float64(s.Running) })
	known(gauge, "num_requests_waiting", "Sequences that wait for a seat or for memory.", func(s engine.Stats) float64 { return float64(max(0, s.Open-s.Running)) })
	known(gauge, "kv_cache_usage_perc", "Share of the KV memory that is in use, 0 to 1.", func(s engine.Stats) float64 { return float64(s.BlocksUsed) / float64(max(1, s.BlocksTotal)) })
	known(gauge, "num_tokens_running", "Tokens whose keys and values running sequences hold, shared ones counted once.", func(s engine.Stats) float64 { return float64(s.TokensUsed) })
	known(gauge, "num_tokens_waiting", "Tokens of sequences that wait.", func(s engine.Stats) float64 { return float64(s.TokensWaiting) })
	known(gauge, "max_token_capacity", "Tokens that the KV memory holds.", func(s engine.Stats) float64 { return float64(s.BlocksTotal * blockSize) })
	known(counter, "prompt_tokens_total", "Prompt tokens of requests that have begun to answer.", func(s engine.Stats) float64 { return float64(s.PromptTokens) })
	known(counter, "generation_tokens_total", "Tokens generated.", func(s engine.Stats) float64 { return float64(s.GeneratedTokens) })
	known(counter, "num_preemptions_total", "Sequences sent back to the queue for want of memory.", func(s engine.Stats) float64 { return float64(s.Preemptions) })
	known(counter, "prefix_cache_queries_total", "Tokens of sequences that asked the prefix cache.", func(s engine.Stats) float64 { return float64(s.PrefixAsked) })
	known(counter, "prefix_cache_hits_total", "Tokens that the prefix cache had.", func(s engine.Stats) float64 { return float64(s.PrefixFound) })
	known(counter, "spec_decode_num_draft_tokens_total", "Tokens guessed ahead.", func(s engine.Stats) float64 { return float64(s.Drafted) })
	known(counter, "spec_decode_num_accepted_tokens_total", "Tokens guessed ahead that were right.", func(s engine.Stats) float64 { return float64(s.Accepted) })
	own(gauge, "kv_blocks_cached", "Blocks that the prefix cache knows, used ones included.", func(s engine.Stats) float64 { return float64(s.BlocksCached) })
	own(gauge, "conversation_bytes", "Memory that a sleep keeps of the prefix cache; 0 when awake.", func(s engine.Stats) float64 { return float64(s.KeptBytes) })
	own(gauge, "conversation_file_blocks", "Blocks of the prefix cache that are in files and can be found.", func(s engine.Stats) float64 { return float64(s.Kept.Blocks) })
	own(counter, "conversation_blocks_saved_total", "Blocks written to files.", func(s engine.Stats) float64 { return float64(s.Kept.Saved) })
	own(counter, "conversation_blocks_recalled_total", "Blocks read from files.", func(s engine.Stats) float64 { return float64(s.Recalled) })
	own(counter, "conversation_files_refused_total", "Files that were not as they were written, or could not be read.", func(s engine.Stats) float64 { return float64(s.Kept.Refused) })
	own(counter, "conversation_files_failed_total", "Files that could not be written.", func(s engine.Stats) float64 { return float64(s.Kept.Failed) })
	own(counter, "worker_restarts_total", "Attempts to replace a worker that was lost.", func(s engine.Stats) float64 { return float64(s.Restarts) })
	return c
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, l := range c.levels {
		ch <- l.desc
	}
	ch <- c.cache
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	for _, l := range c.levels {
		ch <- prometheus.MustNewConstMetric(l.desc, l.kind, l.of(s))
	}
	ch <- prometheus.MustNewConstMetric(c.cache, prometheus.GaugeValue, 1,
		strconv.Itoa(c.blockSize), strconv.Itoa(s.BlocksTotal), strconv.FormatBool(c.prefix))
}

// adapterUse is vllm:lora_requests_info, by which gateways choose a server.
type adapterUse struct {
	desc *prometheus.Desc
	most string // at once

	// mu guards what follows.
	mu      sync.Mutex
	waiting map[string]int // before their first token
	running map[string]int
	changed time.Time
}

func newAdapterUse(labels prometheus.Labels, most int) *adapterUse {
	return &adapterUse{
		most: strconv.Itoa(most),
		desc: prometheus.NewDesc(vllm+"lora_requests_info", "Adapters at work, by name; the value is the time of the last change.",
			[]string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"}, labels),
		waiting: map[string]int{}, running: map[string]int{}, changed: time.Now(),
	}
}

// add ignores the base model.
func (u *adapterUse) add(name string, waiting, running int) {
	if name == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = time.Now()
	for _, c := range []struct {
		of map[string]int
		n  int
	}{{u.waiting, waiting}, {u.running, running}} {
		if c.of[name] += c.n; c.of[name] == 0 {
			delete(c.of, name)
		}
	}
}

// Describe implements prometheus.Collector.
func (u *adapterUse) Describe(ch chan<- *prometheus.Desc) { ch <- u.desc }

// Collect implements prometheus.Collector.
func (u *adapterUse) Collect(ch chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, float64(u.changed.UnixNano())/1e9,
		u.most, names(u.running), names(u.waiting))
}
