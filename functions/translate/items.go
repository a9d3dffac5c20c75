package translate

import (
	"encoding/json"
	"fmt"
	"strings"
)

type item struct {
	Type      string
	Role      string
	Content   inputParts
	CallID    string `json:"call_id"`
	Name      string
	Namespace string
	Arguments string
	Output    inputParts
}

// inputParts are a text, or parts of content.
type inputParts []struct {
	Type    string
	Text    string
	Refusal string
	Image   string `json:"image_url"`
	Detail  string
}

func (p *inputParts) UnmarshalJSON(raw []byte) error {
	type plain inputParts
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*p = inputParts{{Type: "input_text", Text: text}}
		return nil
	}
	return json.Unmarshal(raw, (*plain)(p))
}

func (r *request) partsText(p inputParts, where string) string {
	var b strings.Builder
	for _, part := range p {
		switch part.Type {
		case "input_text", "output_text", "reasoning_text", "text":
			b.WriteString(part.Text)
		case "refusal":
			b.WriteString(part.Refusal)
		default:
			r.refuse("input", "%s has a part of the type %.40q: only text can be kept there", where, part.Type)
		}
	}
	return b.String()
}

func (r *request) partsContent(p inputParts, where string) any {
	if len(p) == 1 && p[0].Type != "input_image" {
		return r.partsText(p, where)
	}
	out := []any{}
	for _, part := range p {
		switch part.Type {
		case "input_text", "output_text", "text":
			out = append(out, textPart(part.Text))
		case "input_image":
			if part.Image == "" {
				r.refuse("input", "%s has an image without image_url: files are not stored here", where)
			}
			out = append(out, imagePart(part.Image, part.Detail))
		default:
			r.refuse("input", "%s has a part of the type %.40q: text and images can be kept", where, part.Type)
		}
	}
	return out
}

func (r *request) input() {
	t := turns{request: r}
	var instructions, text string
	if r.take("instructions", &instructions); instructions != "" {
		t.add(chatTurn{Role: "system", Content: instructions})
	}
	var list []item
	if r.has("input") && json.Unmarshal(r.object["input"], &text) == nil {
		t.add(chatTurn{Role: "user", Content: text})
	} else if r.take("input", &list); len(list) == 0 {
		r.refuse("input", "input is empty: send a text, or items")
	}
	for i := range list {
		t.addItem(&list[i], fmt.Sprintf("input[%d]", i))
	}
	for _, m := range t.out {
		if m.Content == nil && m.Calls == nil {
			m.Content = ""
		}
	}
	r.remove("input")
	r.put("messages", t.out)
}

// turns makes consecutive thoughts, text and calls of an assistant one message.
type turns struct {
	*request
	out []*chatTurn
	own *chatTurn // the assistant's current message, or nil
}

func (t *turns) add(m chatTurn) {
	t.out, t.own = append(t.out, &m), nil
}

func (t *turns) assistant() *chatTurn {
	if t.own == nil {
		t.add(chatTurn{Role: "assistant"})
		t.own = t.out[len(t.out)-1]
	}
	return t.own
}

// endSaid ends the assistant's message if it has a text or calls.
func (t *turns) endSaid() {
	if t.own != nil && (t.own.Content != nil || t.own.Calls != nil) {
		t.own = nil
	}
}

func (t *turns) addItem(it *item, where string) {
	switch it.Type {
	case "", "message":
		t.addMessage(it, where)
	case "function_call":
		m := t.assistant()
		m.Calls = append(m.Calls, toolCall(it.CallID, called{Name: it.Name, Namespace: it.Namespace}.whole(), it.Arguments))
	case "function_call_output":
		t.add(chatTurn{Role: "tool", CallID: &it.CallID, Content: t.partsText(it.Output, where)})
	case "reasoning":
		text := t.partsText(it.Content, where)
		if t.endSaid(); text != "" {
			t.assistant().Reasoning = &text
		}
	default:
		t.refuse("input", "%s is of the type %.40q: messages, reasoning, function_call and function_call_output can be kept", where, it.Type)
	}
}

func (t *turns) addMessage(it *item, where string) {
	switch it.Role {
	case "assistant":
		t.endSaid()
		t.assistant().Content = t.partsText(it.Content, where)
	case "user", "system", "developer":
		t.add(chatTurn{Role: it.Role, Content: t.partsContent(it.Content, where)})
	default:
		t.refuse("input", "%s.role is %.40q: want user, assistant, system or developer", where, it.Role)
	}
}
