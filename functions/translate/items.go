package translate

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rouse-dev/rouse/api"
)

// item is one of the input.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   parts           `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments string          `json:"arguments"`
	Output    parts           `json:"output"`
	Summary   json.RawMessage `json:"summary"`
}

// parts is a text, or parts of content.
type parts []struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
	Image   string `json:"image_url"`
	Detail  string `json:"detail"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *parts) UnmarshalJSON(raw []byte) error {
	type plain parts
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*p = parts{{Type: "input_text", Text: text}}
		return nil
	}
	return json.Unmarshal(raw, (*plain)(p))
}

// text is that of parts that must all be text.
func (p parts) text(where string) (string, error) {
	var b bytes.Buffer
	for _, part := range p {
		switch part.Type {
		case "input_text", "output_text", "reasoning_text", "text":
			b.WriteString(part.Text)
		case "refusal":
			b.WriteString(part.Refusal)
		default:
			return "", api.BadRequest("input", "%s has a part of the type %.40q: only text can be kept there", where, part.Type)
		}
	}
	return b.String(), nil
}

// chat is the parts as content of a chat's.
func (p parts) chat(where string) (any, error) {
	if len(p) == 1 && p[0].Type != "input_image" {
		return p.text(where)
	}
	out := make([]any, 0, len(p))
	for _, part := range p {
		switch part.Type {
		case "input_text", "output_text", "text":
			out = append(out, map[string]any{"type": "text", "text": part.Text})
		case "input_image":
			if part.Image == "" {
				return nil, api.BadRequest("input", "%s has an image without image_url: files are not stored here", where)
			}
			image := map[string]string{"url": part.Image}
			if part.Detail != "" {
				image["detail"] = part.Detail
			}
			out = append(out, map[string]any{"type": "image_url", "image_url": image})
		default:
			return nil, api.BadRequest("input", "%s has a part of the type %.40q: text and images can be kept", where, part.Type)
		}
	}
	return out, nil
}

// items takes instructions and input out of a request, and makes messages of them.
func items(in object) (out []any, err error) {
	var instructions string
	if err := in.take("instructions", &instructions); err != nil {
		return nil, err
	}
	if instructions != "" {
		out = append(out, map[string]any{"role": "system", "content": instructions})
	}
	var text string
	if in.has("input") && json.Unmarshal(in["input"], &text) == nil {
		delete(in, "input")
		return append(out, map[string]any{"role": "user", "content": text}), nil
	}
	var list []item
	if err := in.take("input", &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, api.BadRequest("input", "input is empty: send a text, or items")
	}
	t := turns{out: out}
	for i, it := range list {
		if err := t.add(&it, fmt.Sprintf("input[%d]", i)); err != nil {
			return nil, err
		}
	}
	t.flush()
	return t.out, nil
}

// turns collects what an assistant has done in a row: thoughts, a text and calls are one message of a chat.
type turns struct {
	out     []any
	pending map[string]any // the assistant's message; nil: none is begun
	calls   []any
}

func (t *turns) assistant() map[string]any {
	if t.pending == nil {
		t.pending = map[string]any{"role": "assistant", "content": nil}
	}
	return t.pending
}

func (t *turns) flush() {
	if t.pending == nil {
		return
	}
	if len(t.calls) > 0 {
		t.pending["tool_calls"] = t.calls
	} else if t.pending["content"] == nil {
		t.pending["content"] = ""
	}
	t.out, t.pending, t.calls = append(t.out, t.pending), nil, nil
}

func (t *turns) add(it *item, where string) error {
	switch it.Type {
	case "", "message":
		return t.message(it, where)
	case "function_call":
		t.assistant()
		t.calls = append(t.calls, map[string]any{"id": it.CallID, "type": "function", "function": map[string]string{"name": called{Name: it.Name, Namespace: it.Namespace}.whole(), "arguments": sent(it.Arguments)}})
	case "function_call_output":
		text, err := it.Output.text(where)
		if err != nil {
			return err
		}
		t.flush()
		t.out = append(t.out, map[string]any{"role": "tool", "tool_call_id": it.CallID, "content": text})
	case "reasoning":
		text, err := it.Content.text(where)
		if err != nil {
			return err
		}
		if len(t.calls) > 0 || t.pending["content"] != nil {
			t.flush() // it begins another turn
		}
		if text != "" {
			t.assistant()["reasoning_content"] = text
		}
	default:
		return api.BadRequest("input", "%s is of the type %.40q: messages, reasoning, function_call and function_call_output can be kept", where, it.Type)
	}
	return nil
}

func (t *turns) message(it *item, where string) error {
	switch it.Role {
	case "assistant":
		text, err := it.Content.text(where)
		if err != nil {
			return err
		}
		if len(t.calls) > 0 || t.pending["content"] != nil {
			t.flush()
		}
		t.assistant()["content"] = text
		return nil
	case "user", "system", "developer":
		content, err := it.Content.chat(where)
		if err != nil {
			return err
		}
		t.flush()
		t.out = append(t.out, map[string]any{"role": it.Role, "content": content})
		return nil
	}
	return api.BadRequest("input", "%s.role is %.40q: want user, assistant, system or developer", where, it.Role)
}
