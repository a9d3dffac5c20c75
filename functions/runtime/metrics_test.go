package runtime_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

func TestSignals(t *testing.T) {
	with := func(change func(*runtime.Signals)) runtime.Signals {
		s := runtime.Unknown()
		change(&s)
		return s
	}
	for name, tt := range map[string]struct {
		kind string
		text string
		want runtime.Signals
	}{
		"vLLM, two engines": {api.RuntimeVLLM, `
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 5.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="1",num_gpu_blocks="1200"} 1.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 10.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 20.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 7.0
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.75e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.76e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="+Inf",engine="0"} 3.0
vllm:time_to_first_token_seconds_count{engine="0"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0"} 1.5
vllm:time_to_first_token_seconds_bucket{le="+Inf",engine="1"} 1.0
vllm:time_to_first_token_seconds_count{engine="1"} 1.0
vllm:time_to_first_token_seconds_sum{engine="1"} 0.25
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="+Inf",engine="0"} 3.0
vllm:e2e_request_latency_seconds_count{engine="0"} 3.0
vllm:e2e_request_latency_seconds_sum{engine="0"} 3.5
`, runtime.Signals{
			Running: 3, Waiting: 5, KVUsage: 0.375, BlockTokens: 16, Blocks: 2200, PromptTokens: 30, GeneratedTokens: 7, Capacity: 35200, Cached: -1, Tokens: 13200, QueuedTokens: -1,
			Times:           map[string]runtime.Histogram{runtime.FirstToken: {Count: 4, Sum: 1.75}, runtime.WholeRequest: {Count: 3, Sum: 3.5}, runtime.PerPrefillToken: {Count: 30, Sum: 1.75}},
			RunningAdapters: []string{"a", "b"}, WaitingAdapters: []string{"c"}, MaxAdapters: 4,
		}},
		"vLLM before V1": {api.RuntimeVLLM, `
vllm:num_requests_running{model_name="m"} 1
vllm:num_requests_waiting{model_name="m"} 0
vllm:gpu_cache_usage_perc{model_name="m"} 0.75
vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1
`, with(func(s *runtime.Signals) { s.Running, s.Waiting, s.KVUsage, s.QueuedTokens = 1, 0, 0.75, 0 })},
		"SGLang, ranks of one engine": {api.RuntimeSGLang, `
sglang:num_running_reqs{tp_rank="0"} 3
sglang:num_running_reqs{tp_rank="1"} 3
sglang:num_queue_reqs{tp_rank="0"} 1
sglang:token_usage{tp_rank="0"} 0.1
sglang:page_size{tp_rank="0"} 64
sglang:num_pages{tp_rank="0"} 100
sglang:num_pages{tp_rank="1"} 100
sglang:prompt_tokens_total{tp_rank="0"} 5
sglang:generation_tokens_total{tp_rank="0"} 6
`, runtime.Signals{Running: 3, Waiting: 1, KVUsage: 0.1, BlockTokens: 64, Blocks: 100, Capacity: 6400, Cached: -1, Tokens: 640, QueuedTokens: -1, PromptTokens: 5, GeneratedTokens: 6}},
		"SGLang before 0.5.11": {api.RuntimeSGLang, `
sglang:num_running_reqs{dp_rank="0"} 3
sglang:num_running_reqs{dp_rank="1"} 4
sglang:cache_config_info{page_size="1",num_pages="500"} 1
`, with(func(s *runtime.Signals) { s.Running, s.BlockTokens, s.Blocks, s.Capacity = 7, 1, 500, 500 })},
		"llama-server": {api.RuntimeLlamaCpp, `
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
llamacpp:prompt_tokens_total 11
llamacpp:tokens_predicted_total 22
llamacpp:kv_cache_usage_ratio nan
`, with(func(s *runtime.Signals) {
			s.Running, s.Waiting, s.PromptTokens, s.GeneratedTokens = 2, 1, 11, 22
		})},
		"a command that is llama-server": {api.RuntimeCommand, "llamacpp:requests_processing 2\nllamacpp:kv_cache_usage_ratio 0.5\n",
			with(func(s *runtime.Signals) { s.Running, s.KVUsage = 2, 0.5 })},
		"the engine": {api.RuntimeEngine, "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n",
			with(func(s *runtime.Signals) { s.Running, s.Waiting, s.KVUsage = 1, 2, 0.5 })},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t).on("GET /metrics", 200, tt.text)
			cfg := config(t, api.Runtime{Kind: tt.kind, Model: "x"})
			cfg.Engine = "/rouse"
			if tt.kind == api.RuntimeCommand {
				cfg.Spec.Command = []string{"srv"}
			}
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Signals(t.Context(), f.endpoint())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("signals (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoSignals(t *testing.T) {
	for name, tt := range map[string]struct {
		kind        string
		status      int
		body        string
		unsupported bool
	}{
		"no path":       {api.RuntimeCommand, 404, noPath, true},
		"not asked for": {api.RuntimeLlamaCpp, 501, `{"error":{"message":"This server does not support metrics endpoint. Start it with --metrics"}}`, true},
		"none we know":  {api.RuntimeCommand, 200, "go_goroutines 3\n", true},
		"a page":        {api.RuntimeCommand, 200, "<html>", false},
		"no text":       {api.RuntimeVLLM, 200, "#TYPE a \n{}", false},
		"broken":        {api.RuntimeVLLM, 500, "no", false},
		"Ollama":        {api.RuntimeOllama, 200, "vllm:num_requests_running 1\n", true},
		"Ray Serve":     {api.RuntimeRayServe, 200, "vllm:num_requests_running 1\n", true},
	} {
		f := newFake(t).on("GET /metrics", tt.status, tt.body)
		spec := api.Runtime{Kind: tt.kind, Model: "x", Endpoint: f.endpoint()}
		_, err := adapter(t, spec).Signals(t.Context(), f.endpoint())
		if err == nil || errors.Is(err, errors.ErrUnsupported) != tt.unsupported || !strings.Contains(err.Error(), "metrics") {
			t.Errorf("%s: %v, want one that is unsupported: %v", name, err, tt.unsupported)
		}
	}
}
