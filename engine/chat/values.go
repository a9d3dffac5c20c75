package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rouse-dev/rouse/engine/jinja"
)

func (t *Template) variables(messages []Message, o Options) (map[string]any, error) {
	all := make([]any, len(messages))
	for i := range messages {
		all[i] = t.callStyle.message(&messages[i], o.Guard)
	}
	vars := map[string]any{
		"messages":              jinja.NewList(all...),
		"add_generation_prompt": o.AddGenerationPrompt,
		"bos_token":             t.bos,
		"eos_token":             t.eos,
		"tools":                 nil,
	}
	if len(o.Tools) > 0 && string(bytes.TrimSpace(o.Tools)) != "null" {
		tools, err := jinja.FromJSON(string(o.Tools), o.Guard)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if l, ok := tools.(*jinja.List); !ok {
			return nil, errors.New("tools: not a JSON array")
		} else if l.Len() > 0 {
			vars["tools"] = l
		}
	}
	for name, raw := range o.Extra {
		if _, taken := vars[name]; taken {
			return nil, fmt.Errorf("template variable %q is set by the server: leave it out", name)
		}
		v, err := jinja.FromJSON(string(raw), o.Guard)
		if err != nil {
			return nil, fmt.Errorf("template variable %q: %w", name, err)
		}
		vars[name] = v
	}
	return vars, nil
}

type callStyle struct {
	textArguments bool // arguments are text, not an object
	emptyContent  bool // the content of a message of calls only is "", not None
	thinking      bool // gpt-oss's member for reasoning, which a message of calls and a text lacks
}

// message leaves out empty fields.
func (t callStyle) message(m *Message, guard func(string) string) *jinja.Dict {
	o := &jinja.Dict{}
	o.Set("role", guard(m.Role))
	if m.Content == "" && len(m.ToolCalls) > 0 && !t.emptyContent {
		o.Set("content", nil)
	} else {
		o.Set("content", guard(m.Content))
	}
	reasoning := "reasoning_content"
	if t.thinking {
		reasoning = "thinking"
	}
	for _, f := range []struct{ key, value string }{{"name", m.Name}, {"tool_call_id", m.ToolCallID}, {reasoning, m.Reasoning}} {
		if f.value != "" && !(f.key == "thinking" && m.Content != "" && len(m.ToolCalls) > 0) {
			o.Set(f.key, guard(f.value))
		}
	}
	if len(m.ToolCalls) == 0 {
		return o
	}
	calls := make([]any, len(m.ToolCalls))
	for i, c := range m.ToolCalls {
		function, call := &jinja.Dict{}, &jinja.Dict{}
		function.Set("name", guard(c.Name))
		function.Set("arguments", t.arguments(c.Arguments, guard))
		call.Set("id", guard(c.ID))
		call.Set("type", "function")
		call.Set("function", function)
		calls[i] = call
	}
	o.Set("tool_calls", jinja.NewList(calls...))
	return o
}

func (t callStyle) arguments(text string, guard func(string) string) any {
	text = object(text)
	if !t.textArguments {
		if v, err := jinja.FromJSON(text, guard); err == nil {
			return v
		}
	}
	return guard(text)
}

// object returns arguments as a JSON object. Other text, as of a cut call, becomes its member "unfinished", as in
// /v1/messages.
func object(text string) string {
	if text = strings.TrimSpace(text); text == "" || text == "null" {
		return "{}"
	}
	if v, err := jinja.FromJSON(text, nil); err == nil {
		if _, is := v.(*jinja.Dict); is {
			return text
		}
	}
	raw, _ := json.Marshal(map[string]string{"unfinished": text})
	return string(raw)
}
