package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

type completion struct {
	ID      string
	Model   string
	Created int64 // seconds, or 0
	Choices []struct {
		Message said
		Delta   said
		Text    string          // of a text completion
		Finish  string          `json:"finish_reason"`
		Stop    json.RawMessage `json:"stop_reason"` // vLLM's: the stop string or token
		Scores  scores          `json:"logprobs"`
	}
	Usage usage
	Error json.RawMessage
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Output struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type said struct {
	Content   string
	Reasoning string `json:"reasoning_content"`
	Thoughts  string `json:"reasoning"` // its newer name
	Calls     []call `json:"tool_calls"`
}

type call struct {
	Index    int
	ID       string
	Function struct{ Name, Arguments string }
}

func (s *said) reasoning() string { return cmp.Or(s.Reasoning, s.Thoughts) }

// scores are log probabilities of tokens. Values of other shapes are dropped.
type scores []json.RawMessage

func (s *scores) UnmarshalJSON(raw []byte) error {
	var of struct{ Content []json.RawMessage }
	if json.Unmarshal(raw, &of) == nil {
		*s = of.Content
	}
	return nil
}

type chatTurn struct {
	Role      string  `json:"role"`
	Content   any     `json:"content"`
	Reasoning *string `json:"reasoning_content,omitempty"`
	Calls     []any   `json:"tool_calls,omitempty"`
	CallID    *string `json:"tool_call_id,omitempty"`
}

func textPart(text string) any { return map[string]string{"type": "text", "text": text} }

func imagePart(url, detail string) any {
	image := map[string]string{"url": url}
	if detail != "" {
		image["detail"] = detail
	}
	return map[string]any{"type": "image_url", "image_url": image}
}

func chatTool(function any) any { return map[string]any{"type": "function", "function": function} }

func chooseTool(name string) any { return chatTool(map[string]string{"name": name}) }

func toolCall(id, name, arguments string) any {
	in := parseArguments(arguments)
	if _, is := in.(json.RawMessage); !is {
		raw, _ := json.Marshal(in) // can't fail
		arguments = string(raw)
	}
	return map[string]any{"id": id, "type": "function", "function": map[string]string{"name": name, "arguments": arguments}}
}

// parseArguments returns an object; if the model was cut off in it, one with the text as "unfinished".
func parseArguments(arguments string) any {
	var o object
	switch {
	case slices.Contains([]string{"", "null"}, strings.TrimSpace(arguments)):
		return struct{}{}
	case json.Unmarshal([]byte(arguments), &o) != nil || o == nil:
		return map[string]string{"unfinished": arguments}
	}
	return json.RawMessage(arguments)
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, raw)
	return b.String()
}

func jsonSchema(name string, schema json.RawMessage, strict any) any {
	return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": name, "schema": schema, "strict": strict}}
}

var jsonObject = map[string]string{"type": "json_object"}
