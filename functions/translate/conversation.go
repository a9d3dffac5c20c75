package translate

import (
	"encoding/json"
	"fmt"
	"strings"
)

type block struct {
	Type      string
	Text      string
	Thinking  string
	ID        string
	Name      string
	Input     json.RawMessage
	ToolUseID string `json:"tool_use_id"`
	Content   content
	IsError   bool `json:"is_error"`
	Source    struct {
		Type      string
		MediaType string `json:"media_type"`
		Data      string
		URL       string
		Content   content
	}
	Title     string
	Context   string
	Citations struct{ Enabled bool }
}

// content is a text, or blocks.
type content []block

func (c *content) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return json.Unmarshal(raw, (*[]block)(c))
	}
	*c = nil
	if text != "" {
		*c = content{{Type: "text", Text: text}}
	}
	return nil
}

type spoken struct {
	Role    string
	Content content
}

func (r *request) conversation() {
	var system content
	var messages []spoken
	r.take("system", &system)
	r.take("messages", &messages)
	r.editContext(messages)
	if len(messages) == 0 {
		r.refuse("messages", "messages is empty: send at least one")
	}
	var out []chatTurn
	if text := r.blockText(system, "system"); text != "" {
		out = append(out, chatTurn{Role: "system", Content: text})
	}
	for i, m := range messages {
		where := fmt.Sprintf("messages[%d]", i)
		switch m.Role {
		case "system": // within the conversation
			out = append(out, chatTurn{Role: "system", Content: r.blockText(m.Content, where)})
		case "user":
			out = append(out, r.userTurns(m.Content, where)...)
		case "assistant":
			out = append(out, r.assistantTurn(m.Content, where))
			if i == len(messages)-1 {
				n := len(m.Content)
				r.continueLast(n > 0 && m.Content[n-1].Type == "text" && strings.TrimSpace(m.Content[n-1].Text) != "")
			}
		default:
			r.refuse("messages", "%s.role is %.40q: want user, assistant or system", where, m.Role)
		}
	}
	r.put("messages", out)
}

func (r *request) blockText(c content, where string) string {
	var parts []string
	for _, b := range c {
		if b.Type != "text" {
			r.refuse(where, "%s has a block of the type %.40q: only text can be kept there", where, b.Type)
		}
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n")
}

// userTurns puts tools' results before the user's text.
func (r *request) userTurns(c content, where string) (out []chatTurn) {
	var parts []any
	var text string
	plain := true // text only
	for i := range c {
		b, at := &c[i], fmt.Sprintf("%s.content[%d]", where, i)
		switch b.Type {
		case "text":
			text = b.Text
			parts = append(parts, textPart(text))
		case "document":
			text = r.document(b, at)
			parts = append(parts, textPart(text))
		case "image":
			url := b.Source.URL
			switch b.Source.Type {
			case "url":
			case "base64":
				url = "data:" + b.Source.MediaType + ";base64," + b.Source.Data
			default:
				r.refuse("messages", "%s is an image from %.40q: want base64 or url", at, b.Source.Type)
			}
			parts, plain = append(parts, imagePart(url, "")), false
		case "tool_result":
			result := r.blockText(b.Content, at)
			if b.IsError {
				result = "Error: " + result
			}
			out = append(out, chatTurn{Role: "tool", CallID: &b.ToolUseID, Content: result})
		default:
			r.refuse("messages", "%s is of the type %.40q: text, image, document and tool_result can be kept", at, b.Type)
		}
	}
	switch {
	case plain && len(parts) == 0 && len(out) > 0:
		return out
	case plain && len(parts) < 2:
		return append(out, chatTurn{Role: "user", Content: text})
	}
	return append(out, chatTurn{Role: "user", Content: parts})
}

func (r *request) document(b *block, at string) string {
	if b.Citations.Enabled {
		r.refuse("messages", "%s.citations can't be kept: no parts of documents are cited here", at)
	}
	text := b.Source.Data
	switch b.Source.Type {
	case "text":
	case "content":
		text = r.blockText(b.Source.Content, at+".source")
	default:
		r.refuse("messages", "%s is a document of the type %.40q: text and content can be kept", at, b.Source.Type)
	}
	for _, above := range []string{b.Context, b.Title} {
		if above != "" {
			text = above + "\n\n" + text
		}
	}
	return text
}

func (r *request) assistantTurn(c content, where string) chatTurn {
	var text, thoughts strings.Builder
	said := chatTurn{Role: "assistant"}
	for i, b := range c {
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
			said.Content = ""
		case "thinking":
			thoughts.WriteString(b.Thinking)
			said.Reasoning = new(thoughts.String())
		case "redacted_thinking": // it is encrypted
		case "tool_use":
			said.Calls = append(said.Calls, toolCall(b.ID, b.Name, compact(b.Input)))
		default:
			r.refuse("messages", "%s.content[%d] is of the type %.40q: text, thinking and tool_use can be kept", where, i, b.Type)
		}
	}
	if said.Content != nil || said.Calls == nil {
		said.Content = text.String()
	}
	return said
}
