package vllmsim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// idsOf are the ids of prompt and answer, the text, and the reasons of its end that a stream tells.
func idsOf(t *testing.T, stream string) (prompt, tokens []int64, text string, ends []string) {
	t.Helper()
	for line := range strings.SplitSeq(stream, "\n") {
		data, found := strings.CutPrefix(line, "data: {")
		if !found {
			continue
		}
		var c struct {
			Prompt  []int64 `json:"prompt_token_ids"`
			Choices []struct {
				Text   string
				Delta  struct{ Content string }
				Prompt []int64 `json:"prompt_token_ids"`
				Tokens []int64 `json:"token_ids"`
				Finish string  `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &c); err != nil || len(c.Choices) != 1 {
			t.Fatalf("%q: %v", data, err)
		}
		one := c.Choices[0]
		for _, p := range [][]int64{c.Prompt, one.Prompt} {
			if len(p) > 0 && len(prompt) > 0 {
				t.Errorf("the prompt's ids come twice")
			}
			prompt = append(prompt, p...)
		}
		tokens, text = append(tokens, one.Tokens...), text+one.Text+one.Delta.Content
		if one.Finish != "" {
			ends = append(ends, one.Finish)
		}
	}
	return prompt, tokens, text, ends
}

// TestTokenIDs: with return_token_ids the first event has those of the prompt, each its own, and a completion of a prompt of both goes on with the answer.
func TestTokenIDs(t *testing.T) {
	s := start(t, Config{})
	for _, form := range []struct {
		sampling    string
		least, most int
	}{{`,"temperature":0`, 0, 12}, {`,"temperature":0.8,"ignore_eos":true`, 0, 30}, {`,"temperature":0`, 0, 400}, {`,"temperature":0`, 99, 400}} {
		body := func(made int, more string) string {
			return fmt.Sprintf(`{"model":"sim/tiny-1b","stream":true,"return_token_ids":true,"max_tokens":%d,"min_tokens":%d%s%s}`, form.most-made, max(0, form.least-made), form.sampling, more)
		}
		prompt, tokens, text, ends := idsOf(t, post(s, "/v1/chat/completions", body(0, `,"messages":[{"role":"user","content":"hello"}]`)).Body.String())
		if len(prompt) == 0 || len(tokens) < 12 || text == "" || len(ends) != 1 {
			t.Fatalf("%+v: %v %v %q %v", form, prompt, tokens, text, ends)
		}
		for made := range tokens {
			all, _ := json.Marshal(append(append([]int64{}, prompt...), tokens[:made]...))
			again, left, more, how := idsOf(t, post(s, "/v1/completions", body(made, `,"prompt":`+string(all))).Body.String())
			if diff := cmp.Diff(tokens[made:], left); diff != "" || !strings.HasSuffix(text, more) || len(again) != len(prompt)+made || how[0] != ends[0] {
				t.Fatalf("%+v: behind %d tokens it goes on with %q to %v (-want +got):\n%s", form, made, more, how, diff)
			}
		}
	}
	whole := ok(t, post(s, "/v1/completions", `{"model":"sim/tiny-1b","prompt":"hello","return_token_ids":true,"max_tokens":3}`))
	if choice := whole["choices"].([]any)[0].(map[string]any); len(choice["token_ids"].([]any)) != 3 || len(choice["prompt_token_ids"].([]any)) == 0 {
		t.Errorf("got %v", choice)
	}
	if old := post(start(t, Config{OldMetrics: true}), "/v1/completions", `{"prompt":"hello","return_token_ids":true,"max_tokens":3}`).Body.String(); strings.Contains(old, "token_ids") {
		t.Errorf("an old one tells %s", old)
	}
}
