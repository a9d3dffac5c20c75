package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

// ask is one request whose answer may not depend on how the engine runs.
type engineAsk struct{ path, body string }

// engineAsks is a bit of everything: every skill, both adapters, certain and drawn
// tokens, penalties, forms, scores of prompts, vectors, several texts of one prompt.
func engineAsks() []engineAsk {
	const scores = `"logprobs":true,"top_logprobs":3`
	var asks []engineAsk
	chat := func(model, prompt, more string) {
		asks = append(asks, engineAsk{"/v1/chat/completions", question(model, prompt, more)})
	}
	g := corpus.New(6, corpus.HeldOut)
	for i, skill := range corpus.Skills {
		chat([]string{"pico", "shout", "pirate"}[i%3], g.SampleOf(skill).Prompt(), `"temperature":0,`+scores)
	}
	chat("pico", "story cat boat", `"seed":11,"temperature":1.3,"n":3,`+scores)
	chat("pirate", "story cat boat", `"seed":12,"temperature":1.1,"top_p":0.9,"top_k":40,"min_p":0.01,`+scores)
	chat("pico", "story dog tree", `"seed":13,"temperature":1,"presence_penalty":0.5,"frequency_penalty":0.5,"repetition_penalty":1.1,"max_tokens":80,`+scores)
	chat("shout", "echo red", `"temperature":0,"prompt_logprobs":2,`+scores)
	chat("pico", "json name=bob age=7", `"temperature":0,"response_format":{"type":"json_object"}`)
	chat("pico", "count red red blue", `"seed":14,"temperature":2,"max_tokens":40,"guided_regex":"[a-z ]{12,40}"`)
	text := func(body string) { asks = append(asks, engineAsk{"/v1/completions", body}) }
	text(`{"model":"pico","prompt":"one two three one two three one two three one two","seed":1,"temperature":0,"ignore_eos":true,"max_tokens":150,"logprobs":1}`)
	text(`{"model":"pico","prompt":["red blue green","red blue gold"],"seed":2,"temperature":1.5,"ignore_eos":true,"max_tokens":120,"logprobs":1,"n":2}`)
	text(`{"model":"pirate","prompt":"The cat has a boat.","temperature":0,"max_tokens":1,"echo":true,"logprobs":2}`)
	asks = append(asks, engineAsk{"/v1/embeddings", `{"model":"pico","input":["echo red","` + strings.Repeat("the sea and the sky ", 20) + `"],"encoding_format":"base64"}`})
	return asks
}

// answers asks everything at once and returns what may not differ, byte for byte: choices, scores, vectors.
func (e *engineServer) answers(ctx context.Context, asks []engineAsk) ([]string, error) {
	got, errs := make([]string, len(asks)), make([]error, len(asks))
	var all sync.WaitGroup
	for i, a := range asks {
		all.Go(func() {
			status, raw, err := e.post(ctx, a.path, a.body)
			var whole struct {
				Choices, Data  json.RawMessage
				PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
			}
			if err == nil {
				err = json.Unmarshal(raw, &whole)
			}
			if err != nil || status != 200 {
				errs[i] = fmt.Errorf("%s: status %d: %s: %w", a.body, status, raw, err)
			}
			got[i] = a.body + "\n" + string(whole.Choices) + string(whole.Data) + string(whole.PromptLogprobs)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return got, nil
}

// TestEngineSameBytes asks the same of engines that run in different ways.
func TestEngineSameBytes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	asks := engineAsks()
	adapters := []string{"--model", "pico", "--lora", "shout=pico/shout", "--lora", "pirate=pico/pirate"}
	want, err := newEngine(t, append(adapters, "--worker", "inside")...).answers(ctx, asks)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"synchronous":     {"--sync"},
		"a process":       {"--worker", "process"},
		"one thread":      {"--threads", "1"},
		"three threads":   {"--threads", "3"},
		"two shards":      {"--shards", "2"},
		"no prefix cache": {"--enable-prefix-caching=false"},
		"guesses":         {"--num-speculative-tokens", "4"},
		"plain Go":        {"ROUSE_CPU=generic"},
		"small chunks":    {"--max-num-batched-tokens", "16", "--max-num-seqs", "3"},
		"little memory":   {"--kv-cache-memory-bytes", littleMemory, "--worker", "process"},
	} {
		t.Run(name, func(t *testing.T) {
			var env []string
			if strings.Contains(args[0], "=") && !strings.HasPrefix(args[0], "-") {
				env, args = args[:1], args[1:]
			}
			e := newEngine(t, slices.Concat(env, adapters, args)...)
			for _, run := range runs(name) {
				got, err := e.answers(ctx, asks)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the %s run (-want +got):\n%s", run, diff)
				}
			}
			e.proof(t, name)
		})
	}
}

// littleMemory holds one context of pico and little more, so that sequences are preempted.
const littleMemory = "640KiB"

// proof looks whether an engine did what its flags are for.
func (e *engineServer) proof(t *testing.T, name string) {
	t.Helper()
	for _, p := range []struct {
		variant, metric string
		some            bool
	}{
		{"no prefix cache", "vllm:prefix_cache_hits_total", false},
		{"a process", "vllm:prefix_cache_hits_total", true},
		{"guesses", "vllm:spec_decode_num_accepted_tokens_total", true},
		{"a process", "vllm:spec_decode_num_draft_tokens_total", false},
		{"little memory", "vllm:num_preemptions_total", true},
	} {
		if p.variant != name {
			continue
		}
		if got, err := e.metric(p.metric); err != nil || (got > 0) != p.some {
			t.Errorf("%s is %v, %v; more than 0: want %v", p.metric, got, err, p.some)
		}
	}
	if pids, err := e.workers("engine worker"); err != nil || len(pids) != map[string]int{"a process": 1, "two shards": 2, "little memory": 1}[name] {
		t.Errorf("the workers are %v, %v", pids, err)
	}
}

// runs are the times that everything is asked: the second finds prompts in the prefix cache. Plain Go is slow.
func runs(variant string) []string {
	if variant == "plain Go" {
		return []string{"only"}
	}
	return []string{"first", "second"}
}
