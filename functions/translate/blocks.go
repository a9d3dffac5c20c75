package translate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// block is one block of content of Anthropic's.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   content         `json:"content"`
	IsError   bool            `json:"is_error"`
	Source    struct {
		Type      string  `json:"type"`
		MediaType string  `json:"media_type"`
		Data      string  `json:"data"`
		URL       string  `json:"url"`
		Content   content `json:"content"`
	} `json:"source"`
	Title   string `json:"title"`
	Context string `json:"context"`
	// Citations are asked for of documents.
	Citations struct{ Enabled bool } `json:"citations"`
}

// content is a text, or blocks.
type content []block

// UnmarshalJSON implements [json.Unmarshaler].
func (c *content) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*c = nil
		if text != "" {
			*c = content{{Type: "text", Text: text}}
		}
		return nil
	}
	return json.Unmarshal(raw, (*[]block)(c))
}

// text is that of blocks that must all be text.
func (c content) text(where string) (string, error) {
	var parts []string
	for _, b := range c {
		if b.Type != "text" {
			return "", api.BadRequest(where, "%s has a block of the type %.40q: only text can be kept there", where, b.Type)
		}
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n"), nil
}

// empty says whether there is no text that an answer can go on from.
func (c content) empty() bool {
	return len(c) == 0 || c[0].Type != "text" || strings.TrimSpace(c[0].Text) == ""
}

// spoken is one message of Anthropic's.
type spoken struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// conversation takes system and messages out of a request, and makes messages of them.
func conversation(in object) ([]any, error) {
	var system content
	if err := in.take("system", &system); err != nil {
		return nil, err
	}
	var messages []spoken
	if err := in.take("messages", &messages); err != nil {
		return nil, err
	}
	if err := edited(in, messages); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, api.BadRequest("messages", "messages is empty: send at least one")
	}
	var out []any
	text, err := system.text("system")
	if err != nil {
		return nil, err
	}
	if text != "" {
		out = append(out, map[string]any{"role": "system", "content": text})
	}
	for i, m := range messages {
		where := fmt.Sprintf("messages[%d]", i)
		var made []any
		switch m.Role {
		case "system": // an instruction in mid-conversation
			if text, err = m.Content.text(where); err == nil {
				made = []any{map[string]any{"role": "system", "content": text}}
			}
		case "user":
			made, err = user(m.Content, where)
		case "assistant":
			if made, err = assistant(m.Content, where); err == nil && i == len(messages)-1 {
				if m.Content[max(0, len(m.Content)-1):].empty() {
					return nil, api.BadRequest("messages", "the last message is the assistant's and ends with no text: there is nothing to go on from, end with a message of the user's")
				}
				in.goOn()
			}
		default:
			err = api.BadRequest("messages", "%s.role is %.40q: want user, assistant or system", where, m.Role)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, made...)
	}
	return out, nil
}

// user makes messages of a user's: the results of tools, each a message of its own, then what the user says.
func user(c content, where string) (out []any, err error) {
	var parts []any
	only := true // texts
	for i := range c {
		b := &c[i]
		at := fmt.Sprintf("%s.content[%d]", where, i)
		switch b.Type {
		case "text":
			parts = append(parts, map[string]any{"type": "text", "text": b.Text})
		case "image":
			url := b.Source.URL
			switch b.Source.Type {
			case "url":
			case "base64":
				url = "data:" + b.Source.MediaType + ";base64," + b.Source.Data
			default:
				return nil, api.BadRequest("messages", "%s is an image from %.40q: want base64 or url", at, b.Source.Type)
			}
			parts, only = append(parts, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}}), false
		case "tool_result":
			text, err := b.Content.text(at)
			if err != nil {
				return nil, err
			}
			if b.IsError {
				text = "Error: " + text
			}
			out = append(out, map[string]any{"role": "tool", "tool_call_id": b.ToolUseID, "content": text})
		case "document":
			text, err := b.document(at)
			if err != nil {
				return nil, err
			}
			parts = append(parts, map[string]any{"type": "text", "text": text})
		default:
			return nil, api.BadRequest("messages", "%s is of the type %.40q: text, image, document and tool_result can be kept", at, b.Type)
		}
	}
	if len(parts) == 0 && len(out) > 0 {
		return out, nil
	}
	said := map[string]any{"role": "user", "content": parts}
	if only && len(parts) <= 1 {
		said["content"] = ""
		if len(parts) == 1 {
			said["content"] = parts[0].(map[string]any)["text"]
		}
	}
	return append(out, said), nil
}

// document is the text of a document, below its title and what is said of it.
func (b *block) document(at string) (string, error) {
	if b.Citations.Enabled {
		return "", api.BadRequest("messages", "%s.citations can't be kept: no parts of documents are cited here", at)
	}
	text := b.Source.Data
	switch b.Source.Type {
	case "text":
	case "content":
		var err error
		if text, err = b.Source.Content.text(at + ".source"); err != nil {
			return "", err
		}
	default:
		return "", api.BadRequest("messages", "%s is a document of the type %.40q: text and content can be kept", at, b.Source.Type)
	}
	for _, above := range []string{b.Context, b.Title} {
		if above != "" {
			text = above + "\n\n" + text
		}
	}
	return text, nil
}

// assistant makes a message of an earlier answer.
func assistant(c content, where string) ([]any, error) {
	var texts, thoughts []string
	var calls []any
	for i, b := range c {
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "thinking":
			thoughts = append(thoughts, b.Thinking)
		case "redacted_thinking": // nobody here can read it
		case "tool_use":
			calls = append(calls, map[string]any{"id": b.ID, "type": "function", "function": map[string]string{"name": b.Name, "arguments": sent(compact(b.Input))}})
		default:
			return nil, api.BadRequest("messages", "%s.content[%d] is of the type %.40q: text, thinking and tool_use can be kept", where, i, b.Type)
		}
	}
	m := map[string]any{"role": "assistant", "content": strings.Join(texts, "")}
	if len(thoughts) > 0 {
		m["reasoning_content"] = strings.Join(thoughts, "")
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
		if len(texts) == 0 {
			m["content"] = nil
		}
	}
	return []any{m}, nil
}
