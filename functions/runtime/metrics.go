package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/promtext"
	"github.com/rouse-dev/rouse/internal/relay"
)

// metricNames are the names of a server's metrics. Of several names, between spaces, the first that exists counts.
type metricNames struct {
	running, waiting, usage  string
	prompt, generated        string
	tokens, queued, capacity string
	times                    map[string]string // histograms, by Signals.Times' names
	prompts                  string            // a histogram of prompts' tokens, for the time per token
	blockTokens, blocks      string
	cached                   string // blocks in the prefix cache
	cacheInfo                string // a block's size and number as labels
	sizeLabel, numberLabel   string
	adapters                 string // lists of adapters as labels, a time as value
	runningLabel, waitLabel  string
	maxLabel                 string
}

// vLLM renamed gpu_cache_usage_perc with its V1 engine. Rouse's engine uses vLLM's names.
var vllmMetrics = metricNames{
	running: "vllm:num_requests_running", waiting: "vllm:num_requests_waiting",
	usage:  "vllm:kv_cache_usage_perc vllm:gpu_cache_usage_perc",
	prompt: "vllm:prompt_tokens_total vllm:prompt_tokens", generated: "vllm:generation_tokens_total vllm:generation_tokens",
	tokens: "vllm:num_tokens_running", queued: "vllm:num_tokens_waiting", capacity: "vllm:max_token_capacity",
	times: map[string]string{
		FirstToken: FirstToken, PerOutputToken: PerOutputToken + " " + InterToken, InterToken: InterToken + " " + PerOutputToken, PerRequestToken: PerRequestToken,
		PerPrefillToken: PerPrefillToken, WholeRequest: WholeRequest, QueueTime: QueueTime, InferenceTime: InferenceTime,
		PrefillTime: PrefillTime, DecodeTime: DecodeTime,
	},
	prompts:   "vllm:request_prompt_tokens",
	cached:    "rouse_engine_kv_blocks_cached",
	cacheInfo: "vllm:cache_config_info", sizeLabel: "block_size", numberLabel: "num_gpu_blocks",
	adapters: "vllm:lora_requests_info", runningLabel: "running_lora_adapters", waitLabel: "waiting_lora_adapters", maxLabel: "max_lora",
}

// SGLang has page_size and num_pages as gauges since 0.5.11, before as labels.
var sglangMetrics = metricNames{
	running: "sglang:num_running_reqs", waiting: "sglang:num_queue_reqs", usage: "sglang:token_usage",
	prompt: "sglang:prompt_tokens_total", generated: "sglang:generation_tokens_total",
	tokens: "sglang:num_used_tokens", capacity: "sglang:max_total_num_tokens",
	times: map[string]string{
		FirstToken:     "sglang:time_to_first_token_seconds",
		PerOutputToken: "sglang:inter_token_latency_seconds sglang:time_per_output_token_seconds",
		InterToken:     "sglang:inter_token_latency_seconds", PerRequestToken: "sglang:request_time_per_output_token_seconds sglang:time_per_output_token_seconds",
		WholeRequest: "sglang:e2e_request_latency_seconds", QueueTime: "sglang:queue_time_seconds",
	},
	blockTokens: "sglang:page_size", blocks: "sglang:num_pages",
	cacheInfo: "sglang:cache_config_info", sizeLabel: "page_size", numberLabel: "num_pages",
}

// llama-server dropped kv_cache_usage_ratio in 2025.
var llamaCppMetrics = metricNames{
	running: "llamacpp:requests_processing", waiting: "llamacpp:requests_deferred", usage: "llamacpp:kv_cache_usage_ratio",
	prompt: "llamacpp:prompt_tokens_total", generated: "llamacpp:tokens_predicted_total",
}

func scrape(ctx context.Context, c *client, e api.Endpoint, known ...metricNames) (Signals, error) {
	raw, err := c.call(ctx, http.MethodGet, e, "/metrics", nil)
	switch {
	case Missing(err):
		return Signals{}, fmt.Errorf("read the runtime's metrics: %w: %w", errors.ErrUnsupported, err)
	case err != nil:
		return Signals{}, fmt.Errorf("read the runtime's metrics: %w", err)
	}
	found, err := promtext.Parse(bytes.NewReader(raw))
	if err != nil {
		return Signals{}, fmt.Errorf("read the runtime's metrics: %w", err)
	}
	for _, n := range known {
		if first(found, n.running) != nil {
			return n.read(found), nil
		}
	}
	return Signals{}, fmt.Errorf("read the runtime's metrics: they have no known name, such as %s: %w", known[0].running, errors.ErrUnsupported)
}

func first(found promtext.Families, names string) *dto.MetricFamily {
	for n := range strings.FieldsSeq(names) {
		if f := found[n]; f != nil && len(f.Metric) > 0 {
			return f
		}
	}
	return nil
}

func (n metricNames) read(found promtext.Families) Signals {
	s := Signals{
		Running: sum(first(found, n.running)), Waiting: sum(first(found, n.waiting)), KVUsage: mean(first(found, n.usage)),
		PromptTokens: sum(first(found, n.prompt)), GeneratedTokens: sum(first(found, n.generated)),
		BlockTokens: mean(first(found, n.blockTokens)), Blocks: sum(first(found, n.blocks)),
		Capacity: sum(first(found, n.capacity)), Tokens: sum(first(found, n.tokens)), QueuedTokens: sum(first(found, n.queued)),
	}
	n.readTimes(found, &s)
	if info := found[n.cacheInfo]; info != nil && s.Blocks < 0 {
		s.BlockTokens, s.Blocks = cache(info, n.sizeLabel, n.numberLabel)
	}
	if s.Cached = sum(first(found, n.cached)); s.Cached > 0 {
		s.Cached *= max(s.BlockTokens, 0)
	}
	if info := found[n.adapters]; info != nil {
		n.readAdapters(info, &s)
	}
	s.complete()
	return s
}

// groups returns a family's values by engine. An engine's ranks report the same: the largest counts.
func groups(f *dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	if f == nil {
		return out
	}
	for _, m := range f.Metric {
		v := value(m)
		if math.IsNaN(v) {
			continue
		}
		engine := promtext.Label(m, "engine") + "/" + promtext.Label(m, "dp_rank")
		if old, found := out[engine]; !found || v > old {
			out[engine] = v
		}
	}
	return out
}

// sum returns -1 if there is no value.
func sum(f *dto.MetricFamily) float64 {
	total, any := 0.0, false
	for _, v := range groups(f) {
		total, any = total+v, true
	}
	if !any {
		return -1
	}
	return total
}

func mean(f *dto.MetricFamily) float64 {
	n := len(groups(f))
	if n == 0 {
		return -1
	}
	return sum(f) / float64(n)
}

// cache returns a block's size, and the number of all engines' blocks.
func cache(f *dto.MetricFamily, sizeLabel, numberLabel string) (size, number float64) {
	sizes, numbers := &dto.MetricFamily{}, &dto.MetricFamily{}
	for _, m := range f.Metric {
		at := func(name string) *dto.Metric {
			v, err := strconv.ParseFloat(promtext.Label(m, name), 64)
			if err != nil {
				v = math.NaN()
			}
			return &dto.Metric{Label: m.Label, Gauge: &dto.Gauge{Value: &v}}
		}
		sizes.Metric = append(sizes.Metric, at(sizeLabel))
		numbers.Metric = append(numbers.Metric, at(numberLabel))
	}
	return mean(sizes), sum(numbers)
}

// readAdapters reads the newest entry: each set of adapters leaves one, whose value is its time.
func (n metricNames) readAdapters(f *dto.MetricFamily, s *Signals) {
	var newest *dto.Metric
	for _, m := range f.Metric {
		if newest == nil || value(m) >= value(newest) {
			newest = m
		}
	}
	if newest == nil {
		return
	}
	s.RunningAdapters, s.WaitingAdapters = list(promtext.Label(newest, n.runningLabel)), list(promtext.Label(newest, n.waitLabel))
	s.MaxAdapters, _ = strconv.Atoi(promtext.Label(newest, n.maxLabel))
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Untyped.GetValue()
}

func (r *engine) Report(path string, body *jsonfield.Object) relay.Asked {
	asked := reportUsage(path, body, true, false)
	if !asked.Chunk {
		asked.Null = func([]byte) bool { return true }
	}
	return asked
}

// Report expects vLLM's fingerprint in the last chunk, which has the usage if that is asked for.
func (r *vllm) Report(path string, body *jsonfield.Object) relay.Asked {
	if has(r.cfg.Spec.Args, "--enable-force-include-usage") { // all clients get it
		return relay.Asked{}
	}
	asked := reportUsage(path, body, true, false)
	asked.Moves = "system_fingerprint"
	return asked
}

// Report expects usage with each chunk even without one at the end. SGLang's chat chunks with text omit empty fields; others write null.
func (r *sglang) Report(path string, body *jsonfield.Object) relay.Asked {
	before, _ := body.Find("stream_options")
	asked := reportUsage(path, body, true, has(r.cfg.Spec.Args, "--stream-response-default-include-usage"))
	if all, _ := jsonfield.Find(before, withEach); string(all) == "true" {
		asked.Field = ""
	}
	asked.Null = func(chunk []byte) bool {
		return !bytes.Contains(chunk, []byte(`"delta"`)) || bytes.Contains(chunk, []byte(`"tool_calls"`))
	}
	return asked
}

func (s *server) Report(path string, body *jsonfield.Object) relay.Asked {
	return reportUsage(path, body, false, false)
}

// Report expects an empty usage in each chunk of a completion.
func (r *ollama) Report(path string, body *jsonfield.Object) relay.Asked {
	if body.Err() != nil {
		return relay.Asked{}
	}
	asked := reportUsage(path, body, false, false)
	if path == "/v1/completions" && asked.Chunk {
		asked.Field = "usage"
	}
	return asked
}

func (r *llamaCpp) Report(path string, body *jsonfield.Object) relay.Asked {
	switch path {
	case "/v1/chat/completions", "/v1/completions", "/v1/responses", "/completion", "/infill":
	default:
		return relay.Asked{}
	}
	const name = "timings_per_token"
	stream, _ := body.Find("stream")
	own, _ := body.Find(name)
	if string(stream) != "true" || own != nil && string(own) != "false" && string(own) != "null" {
		return relay.Asked{}
	}
	body.Set(name, []byte("true"))
	return relay.Asked{Field: "timings"}
}

const (
	atEnd    = "include_usage"
	withEach = "continuous_usage_stats"
)

// reportUsage asks for a stream's usage, with each in each chunk. always: the server reports it at the end unasked.
func reportUsage(path string, body *jsonfield.Object, each, always bool) (asked relay.Asked) {
	stream, _ := body.Find("stream")
	if path != "/v1/chat/completions" && path != "/v1/completions" || string(stream) != "true" {
		return relay.Asked{}
	}
	options, found := body.Find("stream_options")
	if !found || string(options) == "null" {
		options = []byte("{}")
	}
	o := jsonfield.Open(options)
	end, known := switched(o, atEnd)
	all, known2 := switched(o, withEach)
	if o.Err() != nil || !known || !known2 {
		return relay.Asked{} // the server refuses it
	}
	end = end || always
	asked.Chunk = !end
	o.Set(atEnd, []byte("true"))
	if each {
		o.Set(withEach, []byte("true"))
	}
	if each && !all || all && !end {
		asked.Field = "usage"
	}
	body.Set("stream_options", o.Bytes())
	return asked
}

// switched returns a field that is true, false or null; known: it is.
func switched(options *jsonfield.Object, name string) (on, known bool) {
	v, found := options.Find(name)
	return string(v) == "true", !found || string(v) == "true" || string(v) == "false" || string(v) == "null"
}
