package serve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

// TestContinue checks that an answer continues the last message, and that the prompt ends with that message.
func TestContinue(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	for text, ends := range map[string]string{"a bo": "a bo", "a bo ": "a bo ", "<|im_end|> x": "x"} {
		body, _ := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": "a boat"}, {"role": "assistant", "content": text}}, "continue_final_message": true, "return_token_strs": true})
		_, raw := c.do("POST", "/tokenize", string(body))
		var got struct{ Tokens []int32 }
		if err := json.Unmarshal([]byte(raw), &got); err != nil {
			t.Fatal(raw, err)
		}
		if prompt := c.model.raw(got.Tokens); !strings.HasSuffix(prompt, ends) || !strings.Contains(prompt, "<|im_start|>assistant\n") {
			t.Errorf("the prompt is %q, want one that ends with %q", prompt, ends)
		}
	}
	resp, raw := c.do("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a boat"},{"role":"assistant","content":"a bo"}],"continue_final_message":true,"max_tokens":20,"temperature":0}`)
	if resp.StatusCode != http.StatusOK || !strings.Contains(raw, `"content":"at"`) {
		t.Errorf("%d %s", resp.StatusCode, raw)
	}
	for body, says := range map[string]string{
		`{"messages":[{"role":"user","content":"x"}],"continue_final_message":true}`:                                                                        "not the assistant's",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":" "}],"continue_final_message":true}`:                                     "nothing to go on from",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"continue_final_message":true,"add_generation_prompt":true}`:        "both true",
		`{"messages":[{"role":"user","content":"x"}],"modalities":["text","audio"]}`:                                                                        "modalities",
		`{"messages":[{"role":"user","content":"x"}],"web_search_options":{}}`:                                                                              "web_search_options",
		`{"messages":[{"role":"user","content":"x"}],"audio":{"voice":"x"}}`:                                                                                "audio",
		`{"messages":[{"role":"user","content":"x"}],"verbosity":"low"}`:                                                                                    "verbosity",
		`{"messages":[{"role":"user","content":"x"}],"store":true}`:                                                                                         "store",
		`{"messages":[{"role":"user","content":"x"}],"moderation":{}}`:                                                                                      "moderation",
		`{"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function"}]}}}`: "allows none",
	} {
		if resp, raw := c.do("POST", "/v1/chat/completions", body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(raw, says) {
			t.Errorf("%s: %d %s", body, resp.StatusCode, raw)
		}
	}
	asks := `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"y"}],"modalities":["text"],"verbosity":"medium","store":false,"max_tokens":40,` +
		`"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}}`
	if resp, raw := c.do("POST", "/v1/chat/completions", asks); resp.StatusCode != http.StatusOK || !strings.Contains(raw, `"name":"g"`) || strings.Contains(raw, `"name":"f"`) {
		t.Errorf("some of the tools: %d %s", resp.StatusCode, raw)
	}
}

// TestDeveloper checks that a developer's message is a system message, for templates that know neither that role nor a
// second system message.
func TestDeveloper(t *testing.T) {
	c := startWith(t, serve.Config{}, 0, `{% for m in messages %}{% if m.role == 'system' and not loop.first or m.role not in ['system', 'user'] %}`+
		`{{ raise_exception('unexpected ' + m.role) }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}`)
	var got struct{ Tokens []int32 }
	raw := c.post("/tokenize", `{"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"c"}]}`)
	if err := json.Unmarshal([]byte(raw), &got); err != nil || !strings.Contains(c.model.raw(got.Tokens), "<system>a\n\nb<user>c") {
		t.Errorf("the prompt is %q, %v; %s", c.model.raw(got.Tokens), err, raw)
	}
}

// TestToolsWithoutPlace checks that tools reach a model whose template does not show tools, and that calls of the
// model itself, valid or not, are no reason to refuse a conversation.
func TestToolsWithoutPlace(t *testing.T) {
	c := startWith(t, serve.Config{}, 0, "")
	for with, want := range map[string]string{
		`,"tools":[{"type":"function","function":{"name":"f"}}]`:                               `[{"type":"function","function":{"name":"f"}}]`,
		`,"tools":[{"type":"function","function":{"name":"f"}}],"add_generation_prompt":false`: `answer with {"name": "…", "arguments": {…}}`,
	} {
		var got struct{ Tokens []int32 }
		raw := c.post("/tokenize", `{"messages":[{"role":"user","content":"x"}]`+with+`}`)
		if err := json.Unmarshal([]byte(raw), &got); err != nil || !strings.Contains(c.model.raw(got.Tokens), want) {
			t.Errorf("the prompt is %q, %v: want %q in it", c.model.raw(got.Tokens), err, want)
		}
	}
	for _, arguments := range []string{``, `{\"x\":`, `{}`} {
		_, raw := c.do("POST", "/v1/chat/completions", `{"temperature":0,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"refusal":null,"tool_calls":[`+
			`{"id":"1","type":"function","function":{"name":"f","arguments":"`+arguments+`"}}]},{"role":"tool","tool_call_id":"1","content":"y"},{"role":"user","content":"so"}]}`)
		if !strings.Contains(raw, `"content":"so"`) {
			t.Errorf("arguments %q: %s", arguments, raw)
		}
	}
}
