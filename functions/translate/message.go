package translate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// message is a completion as Anthropic's message. silent leaves out what was thought, and tells only that it was.
func (c *completion) message(silent bool) message {
	choice := &c.Choices[0]
	blocks := []any{}
	if thoughts := choice.Message.reasoning(); thoughts != "" {
		if silent {
			thoughts = ""
		}
		blocks = append(blocks, thinkingBlock{"thinking", thoughts, ""})
	}
	if text := choice.Message.Content; text != "" {
		blocks = append(blocks, textBlock{"text", text})
	}
	for _, call := range choice.Message.Calls {
		blocks = append(blocks, toolBlock{"tool_use", call.ID, call.Function.Name, input(call.Function.Arguments)})
	}
	reason, sequence := stopReason(choice.Finish, choice.Stop)
	return message{ID: "msg_" + strings.TrimPrefix(c.ID, "chatcmpl-"), Type: "message", Role: "assistant", Model: c.Model,
		Content: blocks, StopReason: &reason, StopSequence: sequence, Usage: c.Usage.anthropic()}
}

// input is the arguments of a call as an object. A model may have been cut off in them: then they are kept as a text.
func input(arguments string) any {
	var o map[string]json.RawMessage
	switch {
	case slices.Contains([]string{"", "null"}, strings.TrimSpace(arguments)):
		return struct{}{}
	case json.Unmarshal([]byte(arguments), &o) != nil || o == nil:
		return map[string]string{"unfinished": arguments}
	}
	return json.RawMessage(arguments)
}

// sent is the arguments of an earlier call as a chat completion has them: the text of an object.
func sent(arguments string) string {
	in := input(arguments)
	if _, is := in.(json.RawMessage); is {
		return arguments
	}
	raw, _ := json.Marshal(in) // of our own types
	return string(raw)
}

// compact is JSON that was read as a text without blanks.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, raw)
	return b.String()
}

// Anthropic's wire types.
type (
	message struct {
		ID           string  `json:"id"`
		Type         string  `json:"type"`
		Role         string  `json:"role"`
		Model        string  `json:"model"`
		Content      []any   `json:"content"`
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
		Usage        tokens  `json:"usage"`
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
	tokens struct {
		Input   int `json:"input_tokens"`
		Written int `json:"cache_creation_input_tokens"`
		Read    int `json:"cache_read_input_tokens"`
		Output  int `json:"output_tokens"`
		// Details is nil where no thoughts were counted.
		Details *thinkingTokens `json:"output_tokens_details,omitempty"`
	}
	thinkingTokens struct {
		Thinking int `json:"thinking_tokens"`
	}
)

// anthropic counts what was read from the cache apart, as Anthropic does.
func (u usage) anthropic() tokens {
	t := tokens{Input: max(0, u.Prompt-u.Details.Cached), Read: u.Details.Cached, Output: u.Completion}
	if u.Output.Reasoning > 0 {
		t.Details = &thinkingTokens{u.Output.Reasoning}
	}
	return t
}

// stopReason is why an answer has ended, with the text that ended it.
func stopReason(finish string, stop json.RawMessage) (string, *string) {
	var text string
	if finish == "stop" && json.Unmarshal(stop, &text) == nil && text != "" {
		return "stop_sequence", &text
	}
	switch finish {
	case "length":
		return "max_tokens", nil
	case "tool_calls", "function_call":
		return "tool_use", nil
	case "content_filter":
		return "refusal", nil
	}
	return "end_turn", nil
}
