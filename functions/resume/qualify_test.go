package resume

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api/control"
)

// TestWhatDoesNotGoOn: such a request reaches vLLM unchanged, its answer reaches the client, and the header says why.
func TestWhatDoesNotGoOn(t *testing.T) {
	chat := func(more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":9,` + more + `}`
	}
	for name, test := range map[string]struct{ path, body, why string }{
		"several texts":     {"", chat(`"n":2`), "the field n"},
		"best of":           {"", chat(`"best_of":2`), "best_of"},
		"tools":             {"", chat(`"tools":[{"type":"function"}]`), "tools"},
		"tools auto":        {"", chat(`"tools":[{"type":"function"}],"tool_choice":"auto"`), ""},
		"forced":            {"", chat(`"tool_choice":"required"`), "tool_choice"},
		"functions":         {"", chat(`"functions":[{}]`), "functions"},
		"schema":            {"", chat(`"response_format":{"type":"json_object"}`), "response_format"},
		"structured":        {"", chat(`"structured_outputs":{"regex":"a"}`), "structured_outputs"},
		"guided":            {"", chat(`"guided_json":{}`), "guided_json"},
		"logprobs":          {"", chat(`"logprobs":true`), "logprobs"},
		"logprobs, text":    {pathText, `{"prompt":"a","stream":true,"logprobs":1}`, "logprobs"},
		"none of them":      {pathText, `{"prompt":"a","stream":true,"prompt_logprobs":0}`, "prompt_logprobs"},
		"echo":              {pathText, `{"prompt":"a","stream":true,"echo":true}`, "echo"},
		"suffix":            {pathText, `{"prompt":"a","stream":true,"suffix":"b"}`, "suffix"},
		"stop":              {"", chat(`"stop":["x"]`), "stop"},
		"seed":              {"", chat(`"seed":1`), "seed"},
		"seed, drawn":       {"", chat(`"seed":1,"temperature":0.7`), "seed"},
		"presence":          {"", chat(`"presence_penalty":0.5`), "presence_penalty"},
		"frequency":         {"", chat(`"frequency_penalty":-1`), "frequency_penalty"},
		"beams":             {"", chat(`"use_beam_search":true`), "use_beam_search"},
		"embeds":            {pathText, `{"prompt_embeds":"AAAA","stream":true}`, "prompt_embeds"},
		"several prompts":   {pathText, `{"prompt":["a","b"],"stream":true}`, "prompt"},
		"an image":          {"", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}],"stream":true,"max_tokens":3}`, "messages"},
		"ids of the client": {"", chat(`"return_token_ids":true`), "return_token_ids"},
		"bad words":         {"", chat(`"bad_words":["a"]`), "bad_words"},
		"truncated":         {"", chat(`"truncate_prompt_tokens":5`), "truncate_prompt_tokens"},
		"continued":         {"", chat(`"continue_final_message":true`), "continue_final_message"},
		"no stream":         {"", `{"messages":[{"role":"user","content":"a"}]}`, "no stream"},
		"what nobody knows": {"", chat(`"new_thing":1`), `"new_thing"`},
		"other options":     {"", chat(`"stream_options":{"new":true}`), "stream_options"},
		"arguments":         {"", chat(`"vllm_xargs":{"a":1}`), "vllm_xargs"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.why == "" {
				test.why = "tool"
			}
			a, why := qualify(cmp.Or(test.path, pathChat), []byte(test.body))
			if a != nil || !strings.Contains(why, test.why) {
				t.Fatalf("got %v, %q; want a reason with %s", a, why, test.why)
			}
			if strings.Contains(test.body, "prompt") || strings.Contains(test.body, "image") {
				return // it is not for the fake
			}
			f := &fake{}
			by, url := served(t, f)
			_, plain := post(t, by, url+pathChat, test.body, "")
			resp, got := post(t, by, url+pathChat, test.body, control.StateNew)
			if got != plain || resp.Header.Get(control.HeaderState) != why {
				t.Errorf("got %v %q, want %q", resp.Header, got, plain)
			}
			if diff := gocmp.Diff(f.bodies[0], f.bodies[1]); diff != "" {
				t.Errorf("vLLM got another request (-plain +got):\n%s", diff)
			}
			if resp, got := post(t, by, url+pathChat, test.body, "ids:a:1:m:x:3:y:-"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, "stream_cut") {
				t.Errorf("a state: got %s %s", resp.Status, got)
			}
		})
	}
	for _, body := range []string{
		chat(`"n":1`), chat(`"stop":[]`), chat(`"stop":null`), chat(`"seed":3,"temperature":0`), chat(`"presence_penalty":0`), chat(`"tools":[{}],"tool_choice":"none"`), chat(`"tools":[]`),
		chat(`"response_format":{"type":"text"}`), chat(`"repetition_penalty":1.1,"top_k":5,"min_p":0.1`), chat(`"logit_bias":{"5":1}`), chat(`"new_thing":null`),
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true}`,
	} {
		if _, why := qualify(pathChat, []byte(body)); why != "" {
			t.Errorf("%s: %s", body, why)
		}
	}
}
