package metrics_test

import (
	"context"
	"errors"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// instance is a fake with the test's numbers.
type instance struct {
	status  api.InstanceStatus
	load    proxy.Load
	signals runtime.Signals
	err     error
	asked   int
	takes   time.Duration // how long the runtime takes to answer
}

func (i *instance) config() metrics.Config {
	return metrics.Config{
		Model:  "m",
		Status: func() api.InstanceStatus { return i.status },
		Load:   func() proxy.Load { return i.load },
		Signals: func(ctx context.Context) (runtime.Signals, error) {
			i.asked++
			select {
			case <-time.After(i.takes):
				return i.signals, i.err
			case <-ctx.Done():
				return runtime.Signals{}, ctx.Err()
			}
		},
	}
}

// scrape returns the samples by name and labels.
func scrape(t *testing.T, m *metrics.Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	samples := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			samples[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return samples
}

// want checks samples; names lack the label that all of the protocol have.
func want(t *testing.T, got map[string]string, samples map[string]string) {
	t.Helper()
	for name, value := range samples {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

func set(t *testing.T, cfg metrics.Config) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheRuntimesOwnNumbers(t *testing.T) {
	i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}, load: proxy.Load{Requests: 3, Tokens: 90, QueuedTokens: 40}}
	i.signals = runtime.Signals{
		Running: 2, Waiting: 1, KVUsage: .25, BlockTokens: 16, Blocks: 100, Capacity: 1600, Tokens: 400, QueuedTokens: 40, PromptTokens: 1000, GeneratedTokens: 500,
		RunningAdapters: []string{"a", "b"}, WaitingAdapters: []string{"c"}, MaxAdapters: 4,
		Times: map[string]runtime.Histogram{runtime.FirstToken: {Count: 5, Sum: 2.5, Buckets: map[float64]uint64{.1: 1, 1: 5}}, runtime.QueueTime: {Count: 5, Sum: 1}},
	}
	got := scrape(t, set(t, i.config()))
	want(t, got, map[string]string{
		`vllm:num_requests_running{model_name="m"}`: "2", `vllm:num_requests_waiting{model_name="m"}`: "1",
		`vllm:kv_cache_usage_perc{model_name="m"}`: "0.25", `vllm:gpu_cache_usage_perc{model_name="m"}`: "0.25",
		`vllm:cache_config_info{block_size="16",model_name="m",num_gpu_blocks="100"}`: "1",
		`vllm:max_token_capacity{model_name="m"}`:                                     "1600",
		`vllm:num_tokens_running{model_name="m"}`:                                     "400", `vllm:num_tokens_waiting{model_name="m"}`: "40",
		`vllm:prompt_tokens_total{model_name="m"}`: "1000", `vllm:generation_tokens_total{model_name="m"}`: "500",
		`vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.1"}`: "1", `vllm:time_to_first_token_seconds_count{model_name="m"}`: "5",
		`vllm:request_queue_time_seconds_sum{model_name="m"}`: "1",
		`rouse_function_state{state="awake"}`:                 "1",
	})
	lora := `vllm:lora_requests_info{max_lora="4",model_name="m",running_lora_adapters="a,b",waiting_lora_adapters="c"}`
	if got[lora] == "" {
		t.Errorf("no %s in %v", lora, got)
	}
}

// blocks returns the signals of a runtime that reports only the size of its KV cache.
func blocks(n float64) runtime.Signals {
	s := runtime.Unknown()
	s.BlockTokens, s.Blocks, s.Capacity, s.MaxAdapters = 1, n, n, 2
	return s
}

// A runtime with few metrics: the function counts. Nothing of the protocol is missing.
func TestTheFunctionCounts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		signals runtime.Signals
		err     error
		usage   string
		blocks  string
	}{
		{"by places", runtime.Signals{}, errors.ErrUnsupported, "0.375", ""},
		{"by tokens", blocks(1000), nil, "0.09", `vllm:cache_config_info{block_size="1",model_name="m",num_gpu_blocks="1000"}`},
		{"no more than all", blocks(10), nil, "1", `vllm:cache_config_info{block_size="1",model_name="m",num_gpu_blocks="10"}`},
		{"no number", runtime.Signals{
			Running: math.NaN(), Waiting: -1, KVUsage: math.NaN(), BlockTokens: 1, Blocks: 1000, Capacity: math.Inf(1), Tokens: -1, QueuedTokens: math.NaN(),
			PromptTokens: -1, GeneratedTokens: math.NaN(), MaxAdapters: 2,
		}, nil, "0.09", `vllm:cache_config_info{block_size="1",model_name="m",num_gpu_blocks="1000"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8, Adapters: []api.ModelName{"a", "b"}}, err: tc.err, signals: tc.signals}
			i.load = proxy.Load{Requests: 3, Tokens: 90, QueuedTokens: 40, Adapters: []api.ModelName{"a"}}
			m := set(t, i.config())
			m.Observe(proxy.Outcome{Path: "/v1/completions", Status: 200, PromptTokens: 7, GeneratedTokens: 5})
			got := scrape(t, m)
			want(t, got, map[string]string{
				`vllm:num_requests_running{model_name="m"}`: "3", `vllm:num_requests_waiting{model_name="m"}`: "0",
				`vllm:kv_cache_usage_perc{model_name="m"}`: tc.usage, `vllm:num_tokens_waiting{model_name="m"}`: "0",
				`vllm:prompt_tokens_total{model_name="m"}`: "7", `vllm:generation_tokens_total{model_name="m"}`: "5",
			})
			for name, value := range got {
				if strings.HasPrefix(name, "vllm:cache_config_info") && name != tc.blocks {
					t.Errorf("%s is there, want %s", name, tc.blocks)
				}
				if lora := `vllm:lora_requests_info{max_lora="2",model_name="m",running_lora_adapters="a",waiting_lora_adapters=""}`; strings.HasPrefix(name, "vllm:lora") && name != lora {
					t.Errorf("%s is there, want %s", name, lora)
				}
				if value == "NaN" {
					t.Errorf("%s is no number", name)
				}
			}
		})
	}
}

func TestASleeperIsNotAsked(t *testing.T) {
	for _, state := range []api.State{api.Starting, api.Asleep, api.Unhealthy, api.Gone} {
		i := &instance{status: api.InstanceStatus{State: state}, signals: runtime.Signals{Running: 9}}
		got := scrape(t, set(t, i.config()))
		want(t, got, map[string]string{`vllm:num_requests_running{model_name="m"}`: "0", `vllm:kv_cache_usage_perc{model_name="m"}`: "0"})
		if i.asked != 0 {
			t.Errorf("%s: the runtime was asked", state)
		}
	}
}

func TestTheRuntimeIsNotAskedTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{status: api.InstanceStatus{State: api.Awake}, signals: runtime.Signals{Running: 1}}
		m := set(t, i.config())
		for range 20 {
			scrape(t, m)
			time.Sleep(50 * time.Millisecond)
		}
		if i.asked != 5 {
			t.Errorf("asked %d times in a second, want 5", i.asked)
		}
	})
}

// A hanging runtime delays no scrape; its last values are used for a while.
func TestARuntimeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &instance{status: api.InstanceStatus{State: api.Awake}, load: proxy.Load{Requests: 1}}
		i.signals = runtime.Signals{Running: 5, PromptTokens: 70, GeneratedTokens: 30}
		m := set(t, i.config())
		scrape(t, m)
		i.takes = time.Hour
		for _, step := range []struct {
			after   time.Duration
			running string
		}{{time.Second, "5"}, {time.Second, "5"}, {10 * time.Second, "1"}} {
			time.Sleep(step.after)
			began := time.Now()
			got := scrape(t, m)
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("a scrape took %v", took)
			}
			want(t, got, map[string]string{
				`vllm:num_requests_running{model_name="m"}`: step.running, `vllm:prompt_tokens_total{model_name="m"}`: "70", `vllm:generation_tokens_total{model_name="m"}`: "30",
			})
		}
	})
}

func TestObserve(t *testing.T) {
	i := &instance{status: api.InstanceStatus{State: api.Awake}, err: errors.ErrUnsupported}
	m := set(t, i.config())
	ms := time.Millisecond
	m.Observe(proxy.Outcome{Path: "/v1/completions", Status: 200, Sent: ms, FirstToken: 11 * ms, LastToken: 31 * ms, PromptTokens: 10, GeneratedTokens: 5})
	m.Observe(proxy.Outcome{Path: "/v1/completions", Status: 503, Code: api.CodeAsleep})
	want(t, scrape(t, m), map[string]string{
		`rouse_function_requests_total{path="/v1/completions",status="200"}`: "1", `rouse_function_requests_total{path="/v1/completions",status="503"}`: "1",
		`rouse_function_errors_total{code="asleep"}`:                       "1",
		`vllm:time_to_first_token_seconds_sum{model_name="m"}`:             "0.011",
		`rouse_time_per_prefill_token_seconds_sum{model_name="m"}`:         "0.001",
		`vllm:time_per_output_token_seconds_sum{model_name="m"}`:           "0.005",
		`vllm:request_time_per_output_token_seconds_sum{model_name="m"}`:   "0.005",
		`vllm:request_time_per_output_token_seconds_count{model_name="m"}`: "1",
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := metrics.New(metrics.Config{Model: "m"}); err == nil {
		t.Error("no error without a status")
	}
}

// Adapters count as running while a request names them, regardless of the runtime's list.
func TestIdleAdaptersDoNotRun(t *testing.T) {
	for _, tc := range []struct {
		name    string
		load    []api.ModelName
		waiting float64
		says    [2]string // running, waiting
		want    [2]string
	}{
		{"loaded, and nobody asks", nil, 0, [2]string{"a,b", "a,b"}, [2]string{"", ""}},
		{"one of two", []api.ModelName{"b"}, 0, [2]string{"a,b", ""}, [2]string{"b", ""}},
		{"the runtime has not noticed", []api.ModelName{"a"}, 0, [2]string{"", ""}, [2]string{"a", ""}},
		{"one waits", []api.ModelName{"a", "b"}, 1, [2]string{"a", "b"}, [2]string{"a", "b"}},
		{"in both lists", []api.ModelName{"a", "b"}, 1, [2]string{"a,b", "a,b"}, [2]string{"a,b", ""}},
		{"one that the runtime brought", []api.ModelName{"a"}, 0, [2]string{"a,own", ""}, [2]string{"a,own", ""}},
	} {
		i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8, Adapters: []api.ModelName{"a", "b"}}, load: proxy.Load{Requests: len(tc.load), Adapters: tc.load}}
		i.signals = runtime.Unknown()
		list := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
		i.signals.Running, i.signals.Waiting, i.signals.MaxAdapters = float64(len(tc.load)), tc.waiting, 4
		i.signals.RunningAdapters, i.signals.WaitingAdapters = list(tc.says[0]), list(tc.says[1])
		got := scrape(t, set(t, i.config()))
		lora := `vllm:lora_requests_info{max_lora="4",model_name="m",running_lora_adapters="` + tc.want[0] + `",waiting_lora_adapters="` + tc.want[1] + `"}`
		if got[lora] == "" {
			t.Errorf("%s: no %s", tc.name, lora)
		}
	}
}

// Requests that wait in the function for their adapter's place wait for a picker too; an adapter that also runs is not listed as waiting.
func TestRequestsWaitForAdapters(t *testing.T) {
	i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}}
	i.load = proxy.Load{Requests: 2, Adapters: []api.ModelName{"a", "b"}, Held: []api.ModelName{"d", "c", "c", "a"}}
	i.signals = runtime.Unknown()
	i.signals.Running, i.signals.Waiting, i.signals.MaxAdapters = 2, 1, 2
	m := set(t, i.config())
	got := scrape(t, m)
	want(t, got, map[string]string{`vllm:num_requests_running{model_name="m"}`: "2", `vllm:num_requests_waiting{model_name="m"}`: "5"})
	lora := `vllm:lora_requests_info{max_lora="2",model_name="m",running_lora_adapters="a,b",waiting_lora_adapters="c,d"}`
	if got[lora] == "" {
		t.Errorf("no %s in %v", lora, got)
	}
	if load := m.Meter().Poll(); load.Waiting != 1 {
		t.Errorf("%d requests wait in the runtime, want 1", load.Waiting)
	}
}

// A runtime that reports requests and not tokens: as many unanswered requests count as waiting as it has queued.
func TestTokensThatWait(t *testing.T) {
	i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}, load: proxy.Load{Requests: 4, Tokens: 500, Queued: 3, QueuedTokens: 300}}
	i.signals = runtime.Unknown()
	i.signals.Running, i.signals.Waiting, i.signals.Capacity = 3, 1, 350
	want(t, scrape(t, set(t, i.config())), map[string]string{
		`vllm:num_tokens_waiting{model_name="m"}`: "100", `vllm:num_tokens_running{model_name="m"}`: "350", `vllm:max_token_capacity{model_name="m"}`: "350",
	})
}

// Asleep, sizes and totals keep their last values, and nothing runs.
func TestAsleepItRemembers(t *testing.T) {
	i := &instance{status: api.InstanceStatus{State: api.Awake, Concurrency: 8}}
	i.signals = runtime.Signals{
		Running: 3, Waiting: 2, KVUsage: .5, BlockTokens: 16, Blocks: 10, Capacity: 160, Tokens: 80, QueuedTokens: 20, PromptTokens: 70, GeneratedTokens: 30,
		MaxAdapters: 4, Times: firsts(9, 4.5),
	}
	m := set(t, i.config())
	m.Poll(t.Context())
	i.status.State, i.asked = api.Asleep, 0
	want(t, scrape(t, m), map[string]string{
		`vllm:num_requests_running{model_name="m"}`: "0", `vllm:num_requests_waiting{model_name="m"}`: "0", `vllm:kv_cache_usage_perc{model_name="m"}`: "0",
		`vllm:num_tokens_running{model_name="m"}`: "0", `vllm:num_tokens_waiting{model_name="m"}`: "0", `vllm:max_token_capacity{model_name="m"}`: "160",
		`vllm:cache_config_info{block_size="16",model_name="m",num_gpu_blocks="10"}`: "1", `vllm:prompt_tokens_total{model_name="m"}`: "70",
		`vllm:time_to_first_token_seconds_count{model_name="m"}`: "9",
	})
	if i.asked != 0 || m.MaxAdapters() != 4 {
		t.Errorf("the sleeper was asked %d times; adapters at most %d", i.asked, m.MaxAdapters())
	}
}
