package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// thinker is a template of a reasoning model: it has the marks, and begins the thoughts itself if told to.
const thinker = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor -%}
{{ '<|im_start|>assistant\n' }}{%- if open %}{{ '<think>\n' }}{% endif %}{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}`

// thinking is an answer with thoughts.
type thinking struct {
	Choices []struct {
		Message struct {
			Content *string
			Thought *string `json:"reasoning_content"`
			Calls   []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Finish string `json:"finish_reason"`
	}
	Usage struct {
		Completion int `json:"completion_tokens"`
		Details    *struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
}

// think has a server of parrots say a text; more are further fields of the request.
func (c *client) think(say, more string) (t thinking, status int, raw string) {
	c.t.Helper()
	text, _ := json.Marshal(say)
	resp, raw := c.do("POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":%s}],"temperature":0%s}`, text, more))
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(raw), &t); err != nil {
			c.t.Fatalf("%s: %v", raw, err)
		}
	}
	return t, resp.StatusCode, raw
}

func told(s *string) string {
	if s == nil {
		return "(null)"
	}
	return *s
}

func TestThoughts(t *testing.T) {
	c := startWith(t, serve.Config{}, 0, thinker)
	for _, tt := range []struct {
		name, say, more, thought, text, finish string
	}{
		{"thoughts and a text", "<think>\nhm hm\n</think>\n\nyes", "", "hm hm", "yes", "stop"},
		{"no thoughts", "yes </think> no", "", "(null)", "yes </think> no", "stop"},
		{"behind a text", "yes <think>hm</think>", "", "(null)", "yes <think>hm</think>", "stop"},
		{"empty thoughts", "<think>\n\n</think>\n\nyes", "", "(null)", "yes", "stop"},
		{"cut off in thoughts", "<think>\nhm hm hm hm", `,"max_tokens":14`, "", "", "length"},
		{"begun by the prompt", "<think>\nhm</think>\nyes", `,"chat_template_kwargs":{"open":true}`, "hm", "yes", "stop"},
		{"a form behind what the prompt begins", "<think>\nhm</think>{}", `,"chat_template_kwargs":{"open":true},"guided_regex":"[{][}]"`, "hm", "{}", "stop"},
		{"a form that has the mark", "<think>no</think>", `,"guided_regex":"<think>no</think>"`, "(null)", "<think>no</think>", "stop"},
		{"switched off", "<think>\n\n</think>\n\nyes", `,"reasoning_effort":"none"`, "(null)", "yes", "stop"},
	} {
		got, status, raw := c.think(tt.say, tt.more)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", tt.name, status, raw)
			continue
		}
		m := got.Choices[0]
		if tt.name == "cut off in thoughts" {
			if !strings.HasPrefix(told(m.Message.Thought), "hm") || *m.Message.Content != "" || m.Finish != tt.finish || got.Usage.Details.Reasoning == 0 {
				t.Errorf("%s: %s", tt.name, raw)
			}
			continue
		}
		if told(m.Message.Thought) != tt.thought || told(m.Message.Content) != tt.text || m.Finish != tt.finish {
			t.Errorf("%s: got %s", tt.name, raw)
		}
		if tt.thought == "hm hm" && (got.Usage.Details == nil || got.Usage.Details.Reasoning == 0 || got.Usage.Details.Reasoning >= got.Usage.Completion) {
			t.Errorf("%s: usage: %s", tt.name, raw)
		}
	}
}

// TestThoughtsAndCalls checks that a call after the thoughts is found, and that one within the thoughts is not a call.
func TestThoughtsAndCalls(t *testing.T) {
	c := startWith(t, serve.Config{ToolParser: "hermes"}, 0, toolNames+thinker)
	got, status, raw := c.think(`<think>maybe <tool_call>{"name":"dye","arguments":{}}</tool_call></think>`+"\n"+`<tool_call>{"name":"dye","arguments":{"a":1}}</tool_call>`,
		`,"tools":[{"type":"function","function":{"name":"dye","parameters":{"type":"object"}}}]`)
	if status != http.StatusOK || len(got.Choices) != 1 {
		t.Fatal(status, raw)
	}
	m := got.Choices[0]
	if len(m.Message.Calls) != 1 || m.Message.Calls[0].Function.Arguments != `{"a":1}` || !strings.HasPrefix(told(m.Message.Thought), "maybe <tool_call>") || m.Finish != "tool_calls" {
		t.Errorf("got %s", raw)
	}
}

// TestThoughtsStream checks that the deltas add up to the whole answer, thoughts first.
func TestThoughtsStream(t *testing.T) {
	c := startWith(t, serve.Config{}, 0, thinker)
	_, raw := c.do("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"<think>\nhm < hm\n</think>\n\nyes and no"}],"stream":true,"stream_options":{"include_usage":true},"temperature":0}`)
	thought, text, behind := "", "", false
	for line := range strings.Lines(raw) {
		data, is := strings.CutPrefix(line, "data: {")
		if !is {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string
					Thought string `json:"reasoning_content"`
				}
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, choice := range chunk.Choices {
			thought, text = thought+choice.Delta.Thought, text+choice.Delta.Content
			if behind = behind || choice.Delta.Content != ""; behind && choice.Delta.Thought != "" {
				t.Errorf("thoughts behind the text: %s", line)
			}
		}
	}
	if thought != "hm < hm" || text != "yes and no" || !strings.Contains(raw, `"reasoning_tokens":`) || !strings.HasSuffix(raw, "data: [DONE]\n\n") {
		t.Errorf("thought %q, said %q: %s", thought, text, raw)
	}
}

// TestThoughtBudget checks that thoughts end at their limit, and that the answer goes on.
func TestThoughtBudget(t *testing.T) {
	c := startWith(t, serve.Config{}, 0, thinker)
	long := "<think>\n" + strings.Repeat("hm ", 20) + "</think>\nyes"
	for _, n := range []int{0, 1, 7} {
		got, status, raw := c.think(long, fmt.Sprintf(`,"thinking_token_budget":%d,"max_tokens":110`, n))
		if status != http.StatusOK {
			t.Fatal(status, raw)
		}
		if thought := told(got.Choices[0].Message.Thought); strings.Count(thought, "hm") > n || got.Usage.Details.Reasoning > n+len("</think>") {
			t.Errorf("a budget of %d: %s", n, raw)
		}
		if told(got.Choices[0].Message.Content) == "" {
			t.Errorf("a budget of %d: there is no answer: %s", n, raw)
		}
	}
	open := `,"chat_template_kwargs":{"open":true},"guided_regex":"[{][}]","thinking_token_budget":3`
	if got, status, raw := c.think(long, open); status != http.StatusOK || told(got.Choices[0].Message.Content) != "{}" {
		t.Errorf("a form behind thoughts that were ended: %d %s", status, raw)
	}
}

// TestThoughtsRefused checks that an unsupported field is refused by its name.
func TestThoughtsRefused(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	for more, param := range map[string]string{
		`,"reasoning_effort":"high"`:     "reasoning_effort",
		`,"reasoning_effort":"lots"`:     "reasoning_effort",
		`,"thinking_token_budget":-1`:    "thinking_token_budget",
		`,"thinking_token_budget":"few"`: "thinking_token_budget",
	} {
		if _, status, raw := c.think("x", more); status != http.StatusBadRequest || !strings.Contains(raw, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", more, status, raw)
		}
	}
	if got, status, raw := c.think("<think>x</think>", `,"reasoning_effort":"none","thinking_token_budget":5`); status != http.StatusOK || told(got.Choices[0].Message.Content) != "<think>x</think>" {
		t.Errorf("a model without thoughts: %d %s", status, raw)
	}
}

// TestHarmonyAnswers has a gpt-oss that says what its script has, over HTTP.
func TestHarmonyAnswers(t *testing.T) {
	f := infertest.Open(t, infertest.Spec{Arch: "gpt-oss"})
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	source, _ := f.String("tokenizer.chat_template")
	p := &parrot{tok: tok}
	var script string
	p.Fake = &infertest.Fake{Shape: model.Config{Arch: "fake", Vocab: tok.Size(), Context: 256}, Next: func(seq []int32) int32 {
		_, made, _ := strings.Cut(p.raw(seq), "<|start|>assistant")
		all := tok.Encode(script, true)
		return all[min(len(tok.Encode(made, true)), len(all)-1)] // a step after the end is computed in vain
	}}
	c := startModel(t, serve.Config{}, p, toolNames+source)
	const tools = `,"tools":[{"type":"function","function":{"name":"dye","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}]`
	for _, tt := range []struct{ script, more, thought, text, call, finish string }{
		{"<|channel|>analysis<|message|>hm hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>", "", "hm hm", "yes", "", "stop"},
		{"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.dye <|constrain|>json<|message|>{\"a\": 1}<|call|>", tools, "hm", "(null)", `dye{"a": 1}`, "tool_calls"},
		{"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>", `,"guided_regex":"[{][}]"`, "hm", "{}", "", "stop"},
		{"<|channel|>commentary to=functions.dye <|constrain|>json<|message|>{\"a\": 1}<|call|>", tools + `,"tool_choice":"required"`, "(null)", "(null)", `dye{"a": 1}`, "tool_calls"},
	} {
		script = tt.script
		got, status, raw := c.think("x", tt.more+`,"reasoning_effort":"low"`)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", tt.script, status, raw)
			continue
		}
		m, call := got.Choices[0], ""
		for _, x := range m.Message.Calls {
			call += x.Function.Name + x.Function.Arguments
		}
		if told(m.Message.Thought) != tt.thought || told(m.Message.Content) != tt.text || call != tt.call || m.Finish != tt.finish || got.Usage.Details == nil || (got.Usage.Details.Reasoning > 0) != (tt.thought != "(null)") {
			t.Errorf("%s: got %s", tt.script, raw)
		}
	}
	if _, status, raw := c.think("x", `,"thinking_token_budget":5`); status != http.StatusBadRequest || !strings.Contains(raw, "thinking_token_budget") {
		t.Errorf("a limit of thoughts: %d %s", status, raw)
	}
}
