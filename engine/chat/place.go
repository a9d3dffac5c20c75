package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// places are the parts of a conversation that a template shows; see [Template.placed].
type places struct{ system, manySystem, tools, calls, results bool }

var (
	probeSystem = []Message{{Role: "system", Content: "needle"}, {Role: "system", Content: "bodkin"}, {Role: "user", Content: "question"}}
	probeCall   = []Message{
		{Role: "user", Content: "question"},
		{Role: "assistant", ToolCalls: []ToolCall{{ID: "call00001", Name: "function", Arguments: `{"key": "needle"}`}}},
		{Role: "tool", Name: "function", ToolCallID: "call00001", Content: "bodkin"},
	}
	probeTools = json.RawMessage(`[{"type": "function", "function": {"name": "thimble", "description": "description", ` +
		`"parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "description"}}, "required": ["key"]}}}]`)
)

var probeBudget = jinja.Budget{Steps: 500_000, Memory: 16 << 20, Output: 1 << 20}

// probe takes the first call style with which the template shows a call's arguments.
func (t *Template) probe() {
	render := func(messages []Message, tools json.RawMessage) (text string) { // "": it can't be rendered
		text, _ = t.render(context.Background(), messages, Options{AddGenerationPrompt: true, Tools: tools, Guard: unguarded}, probeBudget)
		return text
	}
	t.has.system = strings.Contains(render(probeSystem[1:], nil), "bodkin")
	both := render(probeSystem, nil)
	t.has.manySystem = strings.Contains(both, "needle") && strings.Contains(both, "bodkin")
	for _, t.callStyle = range []callStyle{{}, {emptyContent: true}, {textArguments: true}, {textArguments: true, emptyContent: true}} {
		text := render(probeCall, probeTools)
		if t.has.calls = strings.Contains(text, "needle"); t.has.calls {
			t.has.tools, t.has.results = strings.Contains(text, "thimble"), strings.Contains(text, "bodkin")
			return
		}
	}
	t.callStyle = callStyle{}
	t.has.tools = strings.Contains(render(probeCall[:1], probeTools), "thimble")
	t.has.results = strings.Contains(render([]Message{probeCall[0], {Role: "assistant", Content: "answer"}, probeCall[2]}, probeTools), "bodkin")
}

// placed rewrites what the template would drop:
//
//  1. Tools are described in the system message, with how to call them.
//  2. Calls become text of the assistant, results text of the user.
//  3. Leading system messages are joined.
func (t *Template) placed(messages []Message, o Options) ([]Message, Options) {
	if o.Call == nil {
		o.Call = func(name, arguments string) string { return `{"name": "` + name + `", "arguments": ` + arguments + `}` }
	}
	if !t.has.tools && hasTools(o.Tools) { // 1
		var tools bytes.Buffer
		_ = json.Compact(&tools, o.Tools) // parsed before
		messages = t.preface(messages, "Functions:\n"+tools.String()+"\nTo call one, answer with "+o.Call("…", "{…}")+" and nothing else.")
		o.Tools = nil
	}
	if !t.has.calls && slices.ContainsFunc(messages, func(m Message) bool { return len(m.ToolCalls) > 0 }) ||
		!t.has.results && slices.ContainsFunc(messages, func(m Message) bool { return m.Role == "tool" }) { // 2
		messages = t.written(messages, o.Call)
	}
	if !t.has.manySystem { // 3
		n := slices.IndexFunc(messages, func(m Message) bool { return m.Role != "system" })
		if n < 0 {
			n = len(messages)
		}
		if n > 1 {
			messages = append([]Message{{Role: "system", Content: paragraphs(messages[:n]...)}}, messages[n:]...)
		}
	}
	return messages, o
}

func hasTools(raw json.RawMessage) bool {
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) == nil && len(list) > 0
}

// preface adds to the leading system messages, or to the first user message if the template shows no system message.
func (t *Template) preface(messages []Message, text string) []Message {
	if !t.has.system {
		messages = slices.Clone(messages)
		if first := slices.IndexFunc(messages, func(m Message) bool { return m.Role == "user" }); first >= 0 {
			messages[first].Content = text + "\n\n" + messages[first].Content
		}
		return messages
	}
	at := slices.IndexFunc(messages, func(m Message) bool { return m.Role != "system" })
	if at <= 0 {
		return append([]Message{{Role: "system", Content: text}}, messages...)
	}
	messages = slices.Clone(messages)
	messages[at-1].Content = paragraphs(messages[at-1], Message{Content: text})
	return messages
}

func (t *Template) written(messages []Message, call func(name, arguments string) string) []Message {
	var out []Message
	names := map[string]string{}
	asUser := false // the last one is a result
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			if names[c.ID] = c.Name; !t.has.calls {
				m.Content = strings.TrimPrefix(m.Content+"\n"+call(c.Name, object(c.Arguments)), "\n")
			}
		}
		if !t.has.calls {
			m.ToolCalls = nil
		}
		result := m.Role == "tool" && !t.has.results
		if result {
			if m.Name == "" {
				m.Name = names[m.ToolCallID]
			}
			m = Message{Role: "user", Content: "Result of " + m.Name + ":\n" + m.Content}
		}
		if last := len(out) - 1; asUser && m.Role == "user" { // many templates want alternating turns
			out[last].Content = paragraphs(out[last], m)
			continue
		}
		out, asUser = append(out, m), result
	}
	return out
}

func paragraphs(messages ...Message) string {
	var texts []string
	for _, m := range messages {
		if m.Content != "" {
			texts = append(texts, m.Content)
		}
	}
	return strings.Join(texts, "\n\n")
}
