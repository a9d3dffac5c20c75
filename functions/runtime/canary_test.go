package runtime_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// withCanary returns a runtime with a canary of some tokens.
func withCanary(t *testing.T, spec api.Runtime, tokens int) runtime.Runtime {
	t.Helper()
	cfg := config(t, spec)
	cfg.CanaryTokens, cfg.Engine = tokens, program(t, "rouse")
	r, err := runtime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// long is the prompt of a canary.
var long = strings.Repeat("1 2 3 4 5 6 7 8 9 ", 15) + "1 2 3 4 5 6"

// A wake ends with the canary in place of the probe.
func TestCanaryIsTheProbe(t *testing.T) {
	asked := `POST /v1/completions {"logprobs":4,"max_tokens":4,"model":"m","prompt":"` + long + `","temperature":0}`
	f := newFake(t).on("POST /wake_up", 200, nothing).on("GET /is_sleeping", 200, `{"is_sleeping":false}`).
		on("POST /v1/completions", 200, `{"choices":[{"text":" 7 8","finish_reason":"length"}]}`)
	r := withCanary(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}, 4)
	got, err := r.Wake(t.Context(), f.endpoint(), api.Level1, nil)
	if diff := cmp.Diff(runtime.Answer{By: "/v1/completions", Text: " 7 8"}, got); diff != "" || err != nil {
		t.Errorf("wake: %v (-want +got):\n%s", err, diff)
	}
	f.asked("POST /wake_up", asked)
	if got, err = r.Canary(t.Context(), f.endpoint(), ""); err != nil || got.Text != " 7 8" {
		t.Errorf("canary: %v, %v", got, err)
	}
	f.asked(asked)
}

// A reload also resets or reloads everything computed or loaded besides the weights.
func TestReload(t *testing.T) {
	f := newFake(t).on("POST /collective_rpc", 200, nothing).on("POST /reset_prefix_cache", 200, nothing)
	if err := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}).Reload(t.Context(), f.endpoint()); err != nil {
		t.Error(err)
	}
	f.asked(`POST /collective_rpc {"method":"reload_weights"}`, "POST /reset_prefix_cache")
	if err := adapter(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x"}).Reload(t.Context(), f.endpoint()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SGLang: %v, want that it is not supported", err)
	}
}

// Our engine's answer to the call is the canary.
func TestCanaryOfTheEngine(t *testing.T) {
	for body, want := range map[string]runtime.Answer{`{"token":17}`: {By: "/wake_up", Text: "17"}, `{}`: {}, ``: {}} {
		f := newFake(t).on("POST /wake_up", 200, body)
		got, err := withCanary(t, api.Runtime{Kind: api.RuntimeEngine, Model: "pico"}, 1).Wake(t.Context(), f.endpoint(), api.Level2, nil)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", body, err, diff)
		}
		f.asked("POST /wake_up")
	}
}

// A server that refuses the canary gets a shorter one, or one without probabilities, or a probe; then nothing is compared.
func TestCanaryRefused(t *testing.T) {
	const refusal = `{"error":{"message":"at most 8 tokens"}}`
	way := func(fields, prompt string) string {
		return `POST /v1/completions {` + fields + `,"model":"m","prompt":"` + prompt + `","temperature":0}`
	}
	calls := []string{
		way(`"logprobs":4,"max_tokens":4`, long), way(`"max_tokens":4`, long), way(`"logprobs":4,"max_tokens":4`, "1 2 3 4 5 6"), way(`"max_tokens":4`, "1 2 3 4 5 6"), probed("m"),
	}
	for n := range calls {
		f := newFake(t)
		for range n {
			f.on("POST /v1/completions", 400, refusal)
		}
		f.on("POST /v1/completions", 200, token)
		got, err := withCanary(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}, 4).Canary(t.Context(), f.endpoint(), "")
		if err != nil || got.Known() != (n < 4) {
			t.Errorf("%d refusals: %v, %v; want no error, and an answer of a canary only", n, got, err)
		}
		f.asked(calls[:n+1]...)
	}
}

// An adapter is asked by the server's name for it, and its probabilities count.
func TestCanaryOfAnAdapter(t *testing.T) {
	for kind, names := range map[string]string{api.RuntimeVLLM: `"logprobs":4,"max_tokens":4,"model":"sql"`, api.RuntimeSGLang: `"logprobs":4,"lora_path":"sql","max_tokens":4,"model":"m"`} {
		f := newFake(t).on("POST /v1/completions", 200, `{"choices":[{"text":" 7","logprobs":{"tokens":[" 7"],"token_logprobs":[-0.5],"top_logprobs":[{" 8":-2,"x":-9," 7":-0.5,"y":-8,"z":-10}]}}]}`)
		got, err := withCanary(t, api.Runtime{Kind: kind, Model: "x"}, 4).Canary(t.Context(), f.endpoint(), "sql")
		if diff := cmp.Diff(runtime.Answer{By: "/v1/completions", Text: " 7", Numbers: []float64{-0.5, -2, -8, -9}}, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", kind, err, diff)
		}
		f.asked(`POST /v1/completions {` + names + `,"prompt":"` + long + `","temperature":0}`)
	}
	f := newFake(t).on("POST /v1/chat/completions", 200, `{"choices":[{"message":{"content":"7"},"logprobs":{"content":[{"token":"7","logprob":-0.5,"top_logprobs":[{"token":"7","logprob":-0.5},{"token":"8","logprob":-2}]}]}}]}`)
	got, err := withCanary(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}, 4).Canary(t.Context(), f.endpoint(), "sql")
	if diff := cmp.Diff(runtime.Answer{By: "/v1/chat/completions", Text: "7", Numbers: []float64{-0.5, -2}}, got); diff != "" || err != nil {
		t.Errorf("chat: %v (-want +got):\n%s", err, diff)
	}
	for _, probs := range []string{`[]`, `5`, `null`, `{"content":"no"}`, `{"top_logprobs":[null]}`} { // unknown formats count as none
		f = newFake(t).on("POST /v1/completions", 200, `{"choices":[{"text":" 7","logprobs":`+probs+`}]}`)
		got, err = withCanary(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}, 4).Canary(t.Context(), f.endpoint(), "")
		if err != nil || got.Text != " 7" || len(got.Numbers) != 0 {
			t.Errorf("%s: %v, %v; want a text alone", probs, got, err)
		}
	}
}

// Models without completions chat, embed or rank.
func TestCanaryWays(t *testing.T) {
	for _, tt := range []struct {
		call, body string
		want       runtime.Answer
	}{
		{"POST /v1/chat/completions", `{"choices":[{"message":{"content":null,"reasoning":"hm"}}]}`, runtime.Answer{By: "/v1/chat/completions", Text: "hm"}},
		{"POST /v1/chat/completions", `{"choices":[{"message":{"content":"7","reasoning_content":"hm "}}]}`, runtime.Answer{By: "/v1/chat/completions", Text: "hm 7"}},
		{"POST /v1/embeddings", `{"data":[{"embedding":[0.5,-0.25]}]}`, runtime.Answer{By: "/v1/embeddings", Numbers: []float64{0.5, -0.25}}},
		{"POST /v1/rerank", `[{"score":0.75,"index":0}]`, runtime.Answer{By: "/v1/rerank", Numbers: []float64{0.75}}},
		{"POST /v1/rerank", `{"results":[{"relevance_score":0.75}]}`, runtime.Answer{By: "/v1/rerank", Numbers: []float64{0.75}}},
	} {
		f := newFake(t).on(tt.call, 200, tt.body)
		got, err := withCanary(t, api.Runtime{Kind: api.RuntimeSGLang, Model: "x"}, 4).Canary(t.Context(), f.endpoint(), "")
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.body, err, diff)
		}
	}
	f := newFake(t).on("POST /api/show", 200, "{}").on("POST /api/generate", 200, `{"done":true,"eval_count":1,"response":" 7"}`)
	got, err := withCanary(t, api.Runtime{Kind: api.RuntimeOllama, Model: "qwen", Endpoint: f.endpoint()}, 1).Wake(t.Context(), f.endpoint(), api.Level1, nil)
	if diff := cmp.Diff(runtime.Answer{By: "/api/generate", Text: " 7"}, got); diff != "" || err != nil {
		t.Errorf("ollama: %v (-want +got):\n%s", err, diff)
	}
	f.asked(`POST /api/show {"model":"qwen"}`, `POST /api/generate {"keep_alive":-1,"model":"qwen","options":{"num_predict":1,"seed":1,"temperature":0},"prompt":"1 2 3 4 5 6","raw":true,"stream":false}`)
}

// An overlong answer fills neither logs nor notes, and its kept part survives JSON.
func TestCanaryThatIsTooLong(t *testing.T) {
	spec := api.Runtime{Kind: api.RuntimeVLLM, Model: "x"}
	f := newFake(t).on("POST /v1/completions", 200, `{"choices":[{"text":"`+strings.Repeat("x€", 1<<20)+`"}]}`)
	got, err := withCanary(t, spec, 4).Canary(t.Context(), f.endpoint(), "")
	if err != nil || len(got.Text) == 0 || len(got.Text) > 1024 {
		t.Fatalf("a text of %d bytes, %v; want 1024 at most", len(got.Text), err)
	}
	raw, _ := json.Marshal(got)
	var back runtime.Answer
	if err := json.Unmarshal(raw, &back); err != nil || !back.Agrees(got) {
		t.Errorf("through JSON it does not agree with itself: %v", err)
	}
	f = newFake(t).on("POST /v1/embeddings", 200, `{"data":[{"embedding":[1`+strings.Repeat(",1", 100000)+`]}]}`)
	if got, err = withCanary(t, spec, 4).Canary(t.Context(), f.endpoint(), ""); err != nil || len(got.Numbers) != 16 || cap(got.Numbers) > 32 {
		t.Errorf("%d numbers in a place for %d, %v; want 16", len(got.Numbers), cap(got.Numbers), err)
	}
	f = newFake(t).on("POST /v1/completions", 200, `{"choices":[{"text":"`+strings.Repeat("x", 17<<20)+`"}]}`)
	if _, err = withCanary(t, spec, 4).Canary(t.Context(), f.endpoint(), ""); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("got %v, want that it is too long", err)
	}
}

func TestAnswersAgree(t *testing.T) {
	text := func(s string) runtime.Answer { return runtime.Answer{By: "/w", Text: s} }
	numbers := func(v ...float64) runtime.Answer { return runtime.Answer{By: "/w", Numbers: v} }
	probs := func(v ...float64) runtime.Answer { return runtime.Answer{By: "/v1/completions", Numbers: v} }
	for name, tt := range map[string]struct {
		a, b runtime.Answer
		want bool
	}{
		"the same text":      {text(" 7"), text(" 7"), true},
		"no text":            {text(""), text(""), true},
		"another text":       {text(" 7"), text(" !"), false},
		"another way":        {text(""), runtime.Answer{By: "/v"}, false},
		"rounded":            {numbers(0.5, -0.001), numbers(0.504, 0.003), true},
		"another vector":     {numbers(0.5, -0.1), numbers(-0.1, 0.5), false},
		"zeros":              {numbers(0.5, -0.1), numbers(0, 0), false},
		"of another length":  {numbers(0.5), numbers(0.5, 0.5), false},
		"zeros before, also": {numbers(0, 0), numbers(0, 0), true},
		"about as likely":    {probs(-0.01, -6, -7, -8), probs(-0.02, -6.5, -7.1, -7.8), true},
		"another adapter's":  {probs(-0.01, -6, -7, -8), probs(-0.01, -5, -7.1, -8.5), false},
		"never likely":       {probs(-0.01), probs(-0.01, -6), false},
	} {
		if got := tt.a.Agrees(tt.b); got != tt.want || tt.b.Agrees(tt.a) != tt.want {
			t.Errorf("%s: %v, want %v both ways", name, got, tt.want)
		}
	}
	raw, _ := json.Marshal(numbers(0.5))
	var back runtime.Answer
	if err := json.Unmarshal(raw, &back); err != nil || !back.Agrees(numbers(0.5)) {
		t.Errorf("through JSON: %s, %v", raw, err)
	}
}
