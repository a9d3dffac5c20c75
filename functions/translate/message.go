package translate

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Anthropic's wire types.
type (
	message struct {
		ID           string          `json:"id"`
		Type         string          `json:"type"`
		Role         string          `json:"role"`
		Model        string          `json:"model"`
		Content      []any           `json:"content"`
		StopReason   *string         `json:"stop_reason"`
		StopSequence *string         `json:"stop_sequence"`
		Usage        json.RawMessage `json:"usage"`
	}
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingBlock struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	toolBlock struct {
		Type  string `json:"type"`
		ID    string `json:"id"`
		Name  string `json:"name"`
		Input any    `json:"input"`
	}
)

func emptyMessage(c *completion) message {
	return message{ID: "msg_" + strings.TrimPrefix(c.ID, "chatcmpl-"), Type: "message", Role: "assistant", Model: c.Model, Content: []any{}, Usage: c.Usage.anthropic()}
}

func newBlock(kind, text string, c *call) any {
	switch kind {
	case kindThoughts:
		return thinkingBlock{"thinking", text, ""}
	case kindText:
		return textBlock{"text", text}
	}
	return toolBlock{"tool_use", c.ID, c.Function.Name, parseArguments(text)}
}

// newMessage leaves out the text of thoughts if silent.
func newMessage(c *completion, silent bool) message {
	m, choice := emptyMessage(c), &c.Choices[0]
	if thoughts := choice.Message.reasoning(); thoughts != "" {
		if silent {
			thoughts = ""
		}
		m.Content = append(m.Content, newBlock(kindThoughts, thoughts, nil))
	}
	if text := choice.Message.Content; text != "" {
		m.Content = append(m.Content, newBlock(kindText, text, nil))
	}
	for _, call := range choice.Message.Calls {
		m.Content = append(m.Content, newBlock(kindCall, call.Function.Arguments, &call))
	}
	m.StopReason, m.StopSequence = stopReason(choice.Finish, choice.Stop)
	return m
}

// anthropic's input_tokens do not include cached ones.
func (u usage) anthropic() json.RawMessage {
	details := ""
	if u.Output.Reasoning > 0 {
		details = fmt.Sprintf(`,"output_tokens_details":{"thinking_tokens":%d}`, u.Output.Reasoning)
	}
	return fmt.Appendf(nil, `{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d%s}`,
		max(0, u.Prompt-u.Details.Cached), u.Details.Cached, u.Completion, details)
}

// stopReason also returns the stop string that ended the answer.
func stopReason(finish string, stop json.RawMessage) (reason, sequence *string) {
	var text string
	if finish == "stop" && json.Unmarshal(stop, &text) == nil && text != "" {
		return new("stop_sequence"), &text
	}
	switch finish {
	case "length":
		return new("max_tokens"), nil
	case "tool_calls", "function_call":
		return new("tool_use"), nil
	case "content_filter":
		return new("refusal"), nil
	}
	return new("end_turn"), nil
}

type messageEvents struct {
	blocks
	silent bool
	index  int // of the open block, or the next
}

func newMessageEvents(out *output, silent bool) *messageEvents {
	s := &messageEvents{blocks: blocks{out: out}, silent: silent}
	s.to = s
	return s
}

func (s *messageEvents) beginAnswer(c *completion) {
	s.out.event("message_start", map[string]any{"message": emptyMessage(c)})
}

func (s *messageEvents) openBlock(c *call) {
	s.out.event("content_block_start", map[string]any{"index": s.index, "content_block": newBlock(s.kind, "", c)})
}

func (s *messageEvents) addPart(part string) {
	delta := map[string]string{"type": "input_json_delta", "partial_json": part}
	switch s.kind {
	case kindThoughts:
		if s.silent {
			return
		}
		delta = map[string]string{"type": "thinking_delta", "thinking": part}
	case kindText:
		delta = map[string]string{"type": "text_delta", "text": part}
	}
	s.out.event("content_block_delta", map[string]any{"index": s.index, "delta": delta})
}

func (s *messageEvents) closeBlock(string) {
	s.out.event("content_block_stop", map[string]any{"index": s.index})
	s.index++
}

func (s *messageEvents) end(e ending) {
	s.closeOpen("")
	reason, sequence := stopReason(e.finish, e.stop)
	s.out.event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence}, "usage": e.usage.anthropic()})
	s.out.event("message_stop", map[string]any{})
}
