package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/engine/serve"
)

func TestSleepAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, time.Millisecond)
		is := func(want bool) {
			t.Helper()
			if _, got := c.do("GET", "/is_sleeping", ""); got != fmt.Sprintf("{\"is_sleeping\":%v}\n", want) {
				t.Errorf("is_sleeping: %s, want %v", got, want)
			}
		}
		is(false)
		if got := c.post("/sleep?level=2", ""); !strings.Contains(got, `"level":2`) || c.model.Level() != 2 {
			t.Errorf("sleep: %s, the model at level %d", got, c.model.Level())
		}
		is(true)
		resp, data := c.do("POST", "/v1/chat/completions", chatBody("x", `,"stream":true`))
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || decode(t, data).Error.Code != "asleep" {
			t.Errorf("a request while asleep: %d %s", resp.StatusCode, data)
		}
		for _, path := range []string{"/health", "/v1/models", "/metrics", "/version", "/load", "/ping"} {
			if resp, data := c.do("GET", path, ""); resp.StatusCode != 200 {
				t.Errorf("%s while asleep: %d %s", path, resp.StatusCode, data)
			}
		}
		c.post("/tokenize", `{"prompt":"x"}`)
		before := len(c.model.Steps())
		var woken struct{ Token *int }
		if err := json.Unmarshal([]byte(c.post("/wake_up", "")), &woken); err != nil || woken.Token == nil || len(c.model.Steps()) != before+1 {
			t.Errorf("wake_up: %+v, %v, %d steps", woken, err, len(c.model.Steps())-before)
		}
		is(false)
		c.post("/v1/chat/completions", chatBody("x", ""))
		c.post("/sleep", "")
		if c.model.Level() != 1 {
			t.Errorf("the default level: %d", c.model.Level())
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, time.Millisecond)
		got := decode(t, c.post("/v1/chat/completions", chatBody("a b c", "")))
		_, text := c.do("GET", "/metrics", "")
		for name, want := range map[string]int{
			"num_requests_running":                          0,
			"num_requests_waiting":                          0,
			"kv_cache_usage_perc":                           0,
			"prompt_tokens_total":                           got.Usage.Prompt,
			"generation_tokens_total":                       got.Usage.Completion,
			"time_to_first_token_seconds_count":             1,
			"inter_token_latency_seconds_count":             got.Usage.Completion - 1,
			"time_per_output_token_seconds_count":           got.Usage.Completion - 1,
			"num_tokens_running":                            0,
			"num_tokens_waiting":                            0,
			"e2e_request_latency_seconds_count":             1,
			`request_success_total{finished_reason="stop",`: 1,
		} {
			name, label, _ := strings.Cut(name, "{")
			line := fmt.Sprintf("vllm:%s{engine=\"0\",%smodel_name=\"parrot\"} %d\n", name, label, want)
			if !strings.Contains(text, line) {
				t.Errorf("no line %s", line)
			}
		}
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(line, "# TYPE rouse_engine_"); ok && strings.Contains(text, "# TYPE vllm:"+name) {
				t.Errorf("vLLM's name and ours for %s", name)
			}
		}
		for _, line := range []string{
			`vllm:cache_config_info{block_size="16",enable_prefix_caching="true",engine="0",model_name="parrot",num_gpu_blocks=`,
			`vllm:lora_requests_info{engine="0",max_lora="4",model_name="parrot",running_lora_adapters="",waiting_lora_adapters=""}`,
			`vllm:prefix_cache_queries_total{`, `vllm:prefix_cache_hits_total{`, `vllm:num_preemptions_total{`,
			fmt.Sprintf("vllm:request_prompt_tokens_sum{engine=\"0\",model_name=\"parrot\"} %d\n", got.Usage.Prompt),
			fmt.Sprintf("vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"parrot\"} %d\n", got.Usage.Completion),
		} {
			if !strings.Contains(text, line) {
				t.Errorf("no line %s", line)
			}
		}
	})
}

func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{Names: []string{"org/bird", "b"}}, 0)
		var list struct {
			Object string
			Data   []struct {
				ID, Object, Root string
				Max              int `json:"max_model_len"`
			}
		}
		_, data := c.do("GET", "/v1/models", "")
		if err := json.Unmarshal([]byte(data), &list); err != nil {
			t.Fatal(err)
		}
		if list.Object != "list" || len(list.Data) != 2 || list.Data[0].ID != "org/bird" || list.Data[1].Root != "org/bird" || list.Data[0].Max != 256 {
			t.Errorf("models: %+v", list)
		}
		for _, path := range []string{"/v1/models/b", "/v1/models/org/bird", "/v1/models/org%2Fbird"} {
			if resp, data := c.do("GET", path, ""); resp.StatusCode != 200 || !strings.Contains(data, `"object":"model"`) {
				t.Errorf("%s: %d %s", path, resp.StatusCode, data)
			}
		}
	})
}
