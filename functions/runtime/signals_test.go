package runtime_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Signals that metrics lack, from other calls or the function's options.
func TestSignalsBesideMetrics(t *testing.T) {
	const one = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n"
	loras := []api.Adapter{{Name: "a", Path: "/a"}, {Name: "b", Path: "/b"}}
	for name, tt := range map[string]struct {
		spec    api.Runtime
		answers map[string]string
		want    func(*runtime.Signals)
	}{
		"llama-server, slots of their own": {
			api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x"},
			map[string]string{"GET /metrics": one, "GET /slots": `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens":30},{"n_ctx":100,"is_processing":false,"n_prompt_tokens":90}]`},
			func(s *runtime.Signals) {
				s.Running, s.Waiting, s.QueuedTokens, s.Capacity, s.Tokens, s.KVUsage = 1, 0, 0, 200, 30, .15
			},
		},
		"llama-server, slots that share": {
			api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Args: []string{"--kv-unified"}},
			map[string]string{"GET /metrics": one, "GET /slots": `[{"n_ctx":100,"is_processing":true,"n_prompt_tokens":30},{"n_ctx":100,"is_processing":true,"n_prompt_tokens":20}]`},
			func(s *runtime.Signals) {
				s.Running, s.Waiting, s.QueuedTokens, s.Capacity, s.Tokens, s.KVUsage = 1, 0, 0, 100, 50, .5
			},
		},
		"llama-server that does not say how full a slot is": {
			api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Adapters: loras},
			map[string]string{"GET /metrics": one, "GET /slots": `[{"n_ctx":100,"is_processing":true},{"n_ctx":100,"is_processing":false}]`},
			func(s *runtime.Signals) {
				s.Running, s.Waiting, s.QueuedTokens, s.Capacity, s.MaxAdapters = 1, 0, 0, 200, 2
			},
		},
		"a llama-server of somebody else's": {
			api.Runtime{Kind: api.RuntimeLlamaCpp, Endpoint: "http://127.0.0.1:1"},
			map[string]string{"GET /metrics": one, "GET /slots": `[{"n_ctx":100,"is_processing":false},{"n_ctx":100,"is_processing":false}]`},
			func(s *runtime.Signals) { s.Running, s.Waiting, s.QueuedTokens, s.Tokens = 1, 0, 0, 0 },
		},
		"Ollama": {
			api.Runtime{Kind: api.RuntimeOllama, Model: "m"},
			map[string]string{"GET /api/ps": `{"models":[{"name":"other","context_length":9},{"name":"m:latest","context_length":4096}]}`},
			func(s *runtime.Signals) { s.Capacity = 4 * 4096 },
		},
		"Ollama, told otherwise": {
			api.Runtime{Kind: api.RuntimeOllama, Model: "m", Env: []string{"OLLAMA_NUM_PARALLEL=2"}},
			map[string]string{"GET /api/ps": `{"models":[{"model":"m:latest","context_length":4096}]}`},
			func(s *runtime.Signals) { s.Capacity = 2 * 4096 },
		},
		"Ollama, a family that it computes alone": {
			api.Runtime{Kind: api.RuntimeOllama, Endpoint: "http://127.0.0.1:1", Model: "m"},
			map[string]string{"GET /api/ps": `{"models":[{"name":"m:latest","context_length":4096,"details":{"family":"nemotron_h_omni"}}]}`},
			func(s *runtime.Signals) { s.Capacity = 4096 },
		},
		"vLLM that has not said how many adapters": {
			api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Adapters: loras, Args: []string{"--max-loras", "3"}},
			map[string]string{"GET /metrics": "vllm:num_requests_running 0\n"},
			func(s *runtime.Signals) { s.Running, s.MaxAdapters = 0, 3 },
		},
		"SGLang's default": {
			api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Adapters: loras},
			map[string]string{"GET /metrics": "sglang:num_running_reqs 0\nsglang:num_used_tokens 40\nsglang:max_total_num_tokens 400\n"},
			func(s *runtime.Signals) {
				s.Running, s.MaxAdapters, s.Tokens, s.Capacity, s.KVUsage = 0, 8, 40, 400, .1
			},
		},
		"an SGLang of somebody else's": {
			api.Runtime{Kind: api.RuntimeSGLang, Endpoint: "http://127.0.0.1:1"},
			map[string]string{"GET /metrics": "sglang:num_running_reqs 0\n", "GET /server_info": `{"enable_lora":true,"max_loras_per_batch":5}`},
			func(s *runtime.Signals) { s.Running, s.MaxAdapters = 0, 5 },
		},
		"an older SGLang of somebody else's": {
			api.Runtime{Kind: api.RuntimeSGLang, Endpoint: "http://127.0.0.1:1"},
			map[string]string{"GET /metrics": "sglang:num_running_reqs 0\n", "GET /get_server_info": `{"enable_lora":true,"max_loras_per_batch":4}`},
			func(s *runtime.Signals) { s.Running, s.MaxAdapters = 0, 4 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			for call, body := range tt.answers {
				f.on(call, 200, body)
			}
			got, err := adapter(t, tt.spec).Signals(t.Context(), f.endpoint())
			if err != nil {
				t.Fatal(err)
			}
			want := runtime.Unknown()
			tt.want(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("signals (-want +got):\n%s", diff)
			}
		})
	}
	f := newFake(t).on("GET /api/ps", 200, `{"models":[{"name":"m:latest","context_length":4096}]}`)
	if s, err := adapter(t, api.Runtime{Kind: api.RuntimeOllama, Endpoint: f.endpoint(), Model: "m"}).Signals(t.Context(), f.endpoint()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an Ollama of somebody else's: %+v, %v; nobody knows how many requests it computes at once", s, err)
	}
}

// A server's histograms are summed over its engines; invalid ones are dropped.
func TestSignalsTimes(t *testing.T) {
	text := `vllm:num_requests_running 0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 1
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 3
vllm:time_to_first_token_seconds_sum{engine="0"} 2
vllm:time_to_first_token_seconds_count{engine="0"} 3
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 2
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 2
vllm:time_to_first_token_seconds_sum{engine="1"} 0.5
vllm:time_to_first_token_seconds_count{engine="1"} 2
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_sum 4
vllm:inter_token_latency_seconds_count 8
# TYPE vllm:request_prefill_time_seconds histogram
vllm:request_prefill_time_seconds_sum 1
vllm:request_prefill_time_seconds_count 5
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_sum 100
vllm:request_prompt_tokens_count 5
# TYPE vllm:request_decode_time_seconds histogram
vllm:request_decode_time_seconds_bucket{le="1"} 9
vllm:request_decode_time_seconds_sum 1
vllm:request_decode_time_seconds_count 5
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_sum NaN
vllm:request_queue_time_seconds_count 5
`
	f := newFake(t).on("GET /metrics", 200, text)
	got, err := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}).Signals(t.Context(), f.endpoint())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]runtime.Histogram{
		runtime.FirstToken:     {Count: 5, Sum: 2.5, Buckets: map[float64]uint64{.1: 3}},
		runtime.PerOutputToken: {Count: 8, Sum: 4}, runtime.InterToken: {Count: 8, Sum: 4},
		runtime.PrefillTime: {Count: 5, Sum: 1}, runtime.PerPrefillToken: {Count: 100, Sum: 1},
	}
	if diff := cmp.Diff(want, got.Times); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}
