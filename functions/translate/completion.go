package translate

import "encoding/json"

// completion is what is read of a chat completion, and of a chunk of one.
type completion struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Created int64  `json:"created"` // seconds; 0: it does not say
	Choices []struct {
		Message said            `json:"message"`
		Delta   said            `json:"delta"`
		Text    string          `json:"text"` // of a completion of a text, whole or a part
		Finish  string          `json:"finish_reason"`
		Stop    json.RawMessage `json:"stop_reason"` // vLLM's: the text that ended it, or a token
		Scores  json.RawMessage `json:"logprobs"`
	} `json:"choices"`
	Usage usage           `json:"usage"`
	Error json.RawMessage `json:"error"`
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

// said is what a model has said, or a part of it.
type said struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Thoughts  string `json:"reasoning"` // the same, by its newer name
	Calls     []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (s *said) reasoning() string {
	if s.Reasoning != "" {
		return s.Reasoning
	}
	return s.Thoughts
}
