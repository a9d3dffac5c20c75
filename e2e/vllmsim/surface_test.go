package vllmsim

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// families parses a server's metrics as Prometheus does.
func families(t *testing.T, h http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(get(h, "/metrics").Body)
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	return all
}

func TestMetricNames(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		have string
		lack string
	}{
		{Config{LoRA: true}, `vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:prompt_tokens_total vllm:generation_tokens_total
			vllm:time_to_first_token_seconds vllm:inter_token_latency_seconds vllm:e2e_request_latency_seconds vllm:request_queue_time_seconds
			vllm:request_prefill_time_seconds vllm:request_decode_time_seconds vllm:request_inference_time_seconds vllm:cache_config_info vllm:lora_requests_info`, "vllm:gpu_cache_usage_perc"},
		{Config{OldMetrics: true}, "vllm:gpu_cache_usage_perc vllm:time_per_output_token_seconds", "vllm:kv_cache_usage_perc vllm:inter_token_latency_seconds vllm:lora_requests_info"},
		{Config{Surface: SGLang, Metrics: true}, `sglang:num_running_reqs sglang:num_queue_reqs sglang:token_usage sglang:prompt_tokens_total
			sglang:generation_tokens_total sglang:time_to_first_token_seconds sglang:cache_config_info`, "vllm:num_requests_running"},
		{Config{Surface: LlamaCpp, Metrics: true}, "llamacpp:requests_processing llamacpp:requests_deferred llamacpp:tokens_predicted_total llamacpp:prompt_tokens_total", ""},
	} {
		s := start(t, tt.cfg)
		answer(t, s, "hello")
		all := families(t, s)
		for _, name := range strings.Fields(tt.have) {
			if all[name] == nil {
				t.Errorf("%s: no %s", tt.cfg.Surface, name)
			}
		}
		for _, name := range strings.Fields(tt.lack) {
			if all[name] != nil {
				t.Errorf("%s: has %s", tt.cfg.Surface, name)
			}
		}
	}
}

func TestMetricsCount(t *testing.T) {
	s := start(t, Config{MaxModelLen: 512})
	prompt := strings.Repeat("one two three four ", 10)
	for range 2 {
		answer(t, s, prompt, `,"max_tokens":6`)
	}
	all := families(t, s)
	counter := func(name string) float64 { return all[name].Metric[0].Counter.GetValue() }
	prompts := counter("vllm:prompt_tokens_total")
	if prompts < 60 || counter("vllm:generation_tokens_total") != 12 {
		t.Errorf("%v prompt tokens, %v generated", prompts, counter("vllm:generation_tokens_total"))
	}
	if hits := float64(s.engine.batch.Counts().Hits); hits < prompts/2-16 || int(hits)%16 != 0 {
		t.Errorf("%v hits of %v, want nearly all of the second prompt, in whole blocks", hits, prompts)
	}
	if h := all["vllm:time_to_first_token_seconds"].Metric[0].Histogram; h.GetSampleCount() != 2 {
		t.Errorf("%d first tokens", h.GetSampleCount())
	}
	if h := all["vllm:inter_token_latency_seconds"].Metric[0].Histogram; h.GetSampleCount() != 10 {
		t.Errorf("%d gaps between tokens, want 10", h.GetSampleCount())
	}
	labels := map[string]string{}
	for _, l := range all["vllm:cache_config_info"].Metric[0].Label {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["block_size"] != "16" || labels["num_gpu_blocks"] == "" {
		t.Errorf("cache_config_info %v", labels)
	}
}

func TestAdapters(t *testing.T) {
	s := start(t, Config{LoRA: true, RuntimeLoRA: true, MaxLoRAs: 1})
	dir := t.TempDir()
	load := func(name, path string) (int, string) {
		w := post(s, "/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name":%q,"lora_path":%q}`, name, path))
		return w.Code, w.Body.String()
	}
	for _, tt := range []struct {
		name, path string
		code       int
		want       string
	}{
		{"sql", dir, 200, "Success: LoRA adapter 'sql' added successfully."},
		{"sql", dir, 400, "has already been loaded"},
		{"", dir, 400, "must be provided"},
		{"x", dir + "/none", 404, "No adapter found for"},
	} {
		if code, body := load(tt.name, tt.path); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("load %q from %s: %d %s", tt.name, tt.path, code, body)
		}
	}
	if got := answer(t, s, "hi", `,"model":"sql"`); !strings.HasPrefix(got, "sql: ") {
		t.Errorf("%q", got)
	}
	ok(t, post(s, "/v1/unload_lora_adapter", `{"lora_name":"sql"}`))
	if w := post(s, "/v1/unload_lora_adapter", `{"lora_name":"sql"}`); w.Code != http.StatusNotFound {
		t.Errorf("unloaded twice: %d", w.Code)
	}
	if w := post(s, "/v1/chat/completions", strings.Replace(hi, "{", `{"model":"sql",`, 1)); w.Code != http.StatusNotFound {
		t.Errorf("an adapter that is gone answers %d", w.Code)
	}
	if w := post(start(t, Config{LoRA: true}), "/v1/load_lora_adapter", `{}`); w.Code != http.StatusNotFound {
		t.Errorf("without VLLM_ALLOW_RUNTIME_LORA_UPDATING: %d", w.Code)
	}
}

func TestAdapterMetrics(t *testing.T) {
	cfg := timed()
	cfg.LoRA, cfg.Adapters = true, []Adapter{{Name: "a", Path: "o/a"}, {Name: "b", Path: "o/b"}}
	inBubble(t, cfg, func(t *testing.T, s *Server) {
		var all sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			all.Go(func() { post(s, "/v1/completions", strings.Replace(tenTokens(20), "{", `{"model":"`+name+`",`, 1)) })
			synctest.Wait()
		}
		time.Sleep(30 * time.Millisecond)
		newest, at := map[string]string{}, 0.0
		for _, m := range families(t, s)["vllm:lora_requests_info"].Metric {
			if m.Gauge.GetValue() >= at {
				at = m.Gauge.GetValue()
				for _, l := range m.Label {
					newest[l.GetName()] = l.GetValue()
				}
			}
		}
		if newest["running_lora_adapters"] != "a" || newest["waiting_lora_adapters"] != "b" || newest["max_lora"] != "1" {
			t.Errorf("%v, want a to run and b to wait for its place", newest)
		}
		all.Wait()
	})
}

func TestVLLMOthers(t *testing.T) {
	s := start(t, Config{Names: []string{"m"}})
	if back := ok(t, post(s, "/detokenize", `{"tokens":[1048576]}`)); back["prompt"] != "" {
		t.Errorf("%v", back)
	}
	m := ok(t, post(s, "/v1/messages", `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`))
	if m["stop_reason"] != "max_tokens" || m["content"].([]any)[0].(map[string]any)["text"] == "" {
		t.Errorf("message %v", m)
	}
	stream := post(s, "/v1/messages", `{"max_tokens":4,"stream":true,"messages":[{"role":"user","content":"hi"}]}`).Body.String()
	if strings.Count(stream, "event: content_block_delta\n") != 4 || !strings.HasSuffix(stream, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
		t.Errorf("messages stream:\n%s", stream)
	}
	if w := post(s, "/v1/chat/completions", hi, "X-Request-Id", "abc"); !strings.Contains(w.Body.String(), `"id":"chatcmpl-abc"`) {
		t.Errorf("the request's id is lost: %s", w.Body)
	}
}

func TestSGLang(t *testing.T) {
	dir := t.TempDir()
	cfg := sleeper(dir)
	cfg.Surface, cfg.WeightsBackup, cfg.LoRA = SGLang, true, true
	s := start(t, cfg)
	want := answer(t, s, "hello")
	ok(t, get(s, "/health"))
	if got := ok(t, get(s, "/server_info")); got["model_path"] != "sim/tiny-1b" {
		t.Errorf("%v", got)
	}
	if w := post(s, "/v1/chat/completions", `{}`); w.Code != 400 || strings.Contains(w.Body.String(), `{"error"`) || !strings.Contains(w.Body.String(), `"object":"error"`) {
		t.Errorf("want a flat error: %d %s", w.Code, w.Body)
	}
	if w := get(s, "/metrics"); w.Code != http.StatusNotFound {
		t.Errorf("metrics without --enable-metrics: %d", w.Code)
	}
	ok(t, post(s, "/load_lora_adapter", `{"lora_name":"sql","lora_path":"org/sql"}`))
	if got := answer(t, s, "hello", `,"lora_path":"sql"`); !strings.HasPrefix(got, "sql: ") {
		t.Errorf("%q", got)
	}
	if w := post(s, "/load_lora_adapter", `{"lora_name":"sql","lora_path":"org/sql"}`); w.Code != 400 {
		t.Errorf("loaded twice: %d", w.Code)
	}
	const turn = `{"messages":[{"role":"user","content":"hello"}],"temperature":0,"max_tokens":4`
	for path, body := range map[string]string{"/v1/chat/completions": turn, "/v1/completions": `{"prompt":"hello","max_tokens":4`} {
		if w := post(s, path, body+`,"lora_path":"sql"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"sql: `) {
			t.Errorf("%s with an adapter: %d %s", path, w.Code, w.Body)
		}
		if w := post(s, path, body+`,"lora_path":"gone"}`); w.Code != 400 || !strings.Contains(w.Body.String(), "gone is not loaded") {
			t.Errorf("%s with one that is not loaded: %d %s", path, w.Code, w.Body)
		}
	}
	if w := post(s, "/v1/chat/completions", turn+`,"model":"gone"}`); w.Code != 200 {
		t.Errorf("it looks at the field model: %d %s", w.Code, w.Body)
	}
	ok(t, post(s, "/release_memory_occupation", ""))
	if got := usedGiB(t, dir); got != 0 {
		t.Errorf("released: %d GiB", got)
	}
	ok(t, post(s, "/resume_memory_occupation", `{"tags":["weights"]}`))
	if got := usedGiB(t, dir); got != 16 {
		t.Errorf("with its weights: %d GiB, want 16", got)
	}
	ok(t, post(s, "/resume_memory_occupation", `{"tags":["kv_cache"]}`))
	if got := answer(t, s, "hello"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSGLangWithoutBackupLosesItsWeights(t *testing.T) {
	cfg := sleeper("")
	cfg.Surface = SGLang
	s := start(t, cfg)
	want := answer(t, s, "hello")
	ok(t, post(s, "/release_memory_occupation", ""))
	ok(t, post(s, "/resume_memory_occupation", ""))
	if got := answer(t, s, "hello"); got == want {
		t.Error("weights without a copy came back")
	}
	ok(t, post(s, "/update_weights_from_disk", `{"model_path":"sim/tiny-1b"}`))
	ok(t, post(s, "/flush_cache", ""))
	if got := answer(t, s, "hello"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSGLangAssertsThatItIsIdle(t *testing.T) {
	cfg := timed()
	cfg.Surface = SGLang
	inBubble(t, cfg, func(t *testing.T, s *Server) {
		done := make(chan int, 1)
		go func() { done <- post(s, "/v1/completions", tenTokens(50)).Code }()
		time.Sleep(50 * time.Millisecond)
		if w := post(s, "/release_memory_occupation", ""); w.Code != http.StatusInternalServerError {
			t.Errorf("released while busy: %d", w.Code)
		}
		if code := <-done; code != http.StatusInternalServerError {
			t.Errorf("what ran: %d, want the scheduler's death", code)
		}
		if w := get(s, "/health"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("health %d", w.Code)
		}
	})
}

func TestLlamaServer(t *testing.T) {
	s := start(t, Config{Surface: LlamaCpp, MaxSeqs: 2, LoRA: true, Adapters: []Adapter{{Name: "sql", Path: "/x/sql.gguf"}}})
	base := answer(t, s, "hello", `,"model":"any name","lora":[{"id":0,"scale":0}]`)
	for _, path := range []string{"/health", "/v1/models"} {
		ok(t, get(s, path))
	}
	if w := get(s, "/metrics"); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "not_supported_error") {
		t.Errorf("metrics without --metrics: %d %s", w.Code, w.Body)
	}
	if got := get(s, "/slots").Body.String(); strings.Count(got, `"is_processing":false`) != 2 {
		t.Errorf("slots %s", got)
	}
	if got := answer(t, s, "hello", `,"lora":[{"id":0,"scale":1}]`); !strings.HasPrefix(got, "sql: ") {
		t.Errorf("a request's own adapter: %q", got)
	}
	if got := answer(t, s, "hello"); !strings.HasPrefix(got, "sql: ") || got == base {
		t.Errorf("with the adapter of the start: %q", got)
	}
	ok(t, post(s, "/lora-adapters", `[{"id":0,"scale":0}]`))
	if got := answer(t, s, "hello"); got != base {
		t.Errorf("without an adapter: %q", got)
	}
	if w := post(s, "/lora-adapters", `[{"id":7,"scale":1.0}]`); w.Code != http.StatusBadRequest {
		t.Errorf("an adapter that is not there: %d", w.Code)
	}
	native := ok(t, post(s, "/completion", `{"prompt":"hello","n_predict":3}`))
	if native["tokens_predicted"] != 3.0 || native["stop_type"] != "limit" {
		t.Errorf("%v", native)
	}
	if w := post(s, "/v1/chat/completions", `{`); w.Code != 400 || !strings.Contains(w.Body.String(), `"type":"invalid_request_error"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get(s, "/nope"); w.Code != 404 || !strings.Contains(w.Body.String(), "Not Found") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestRayServe(t *testing.T) {
	s := start(t, Config{Surface: RayServe})
	ok(t, post(s, "/v1/chat/completions", hi))
	if w := get(s, "/v1/models"); w.Code != http.StatusNotFound {
		t.Errorf("models: %d", w.Code)
	}
}
