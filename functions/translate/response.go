package translate

import (
	"encoding/json"
	"strings"
	"time"
)

// OpenAI's wire types of a response.
type (
	response struct {
		ID           string          `json:"id"`
		Object       string          `json:"object"`
		Created      int64           `json:"created_at"`
		Completed    *int64          `json:"completed_at"`
		Status       string          `json:"status"`
		Background   bool            `json:"background"`
		Error        *struct{}       `json:"error"`
		Incomplete   *incomplete     `json:"incomplete_details"`
		Instructions json.RawMessage `json:"instructions"`
		MaxTokens    json.RawMessage `json:"max_output_tokens"`
		Model        string          `json:"model"`
		Output       []any           `json:"output"`
		Parallel     json.RawMessage `json:"parallel_tool_calls"`
		Previous     *string         `json:"previous_response_id"`
		Reasoning    json.RawMessage `json:"reasoning"`
		Store        bool            `json:"store"`
		Temperature  json.RawMessage `json:"temperature"`
		Text         json.RawMessage `json:"text"`
		ToolChoice   json.RawMessage `json:"tool_choice"`
		Tools        json.RawMessage `json:"tools"`
		TopP         json.RawMessage `json:"top_p"`
		Truncation   string          `json:"truncation"`
		Usage        *used           `json:"usage"`
		User         json.RawMessage `json:"user"`
		Metadata     json.RawMessage `json:"metadata"`
		TopLogprobs  json.RawMessage `json:"top_logprobs"`
		Presence     json.RawMessage `json:"presence_penalty"`
		Frequency    json.RawMessage `json:"frequency_penalty"`
		MaxCalls     json.RawMessage `json:"max_tool_calls"`
		CacheKey     json.RawMessage `json:"prompt_cache_key"`
		Safety       json.RawMessage `json:"safety_identifier"`
		Tier         string          `json:"service_tier"`

		spaces map[string]called // the request's functions, by the names that a chat completion has for them
	}
	incomplete struct {
		Reason string `json:"reason"`
	}
	used struct {
		Input        int           `json:"input_tokens"`
		InputDetails cachedTokens  `json:"input_tokens_details"`
		Output       int           `json:"output_tokens"`
		Details      thoughtTokens `json:"output_tokens_details"`
		Total        int           `json:"total_tokens"`
	}
	cachedTokens struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"` // always 0: nobody pays for it
	}
	thoughtTokens struct {
		Reasoning int `json:"reasoning_tokens"`
	}
	messageItem struct {
		ID      string       `json:"id"`
		Type    string       `json:"type"`
		Status  string       `json:"status"`
		Role    string       `json:"role"`
		Content []outputText `json:"content"`
	}
	outputText struct {
		Type        string            `json:"type"`
		Text        string            `json:"text"`
		Annotations []struct{}        `json:"annotations"`
		Logprobs    []json.RawMessage `json:"logprobs"`
	}
	callItem struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Status    string `json:"status"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
		Arguments string `json:"arguments"`
	}
	reasoningItem struct {
		ID      string          `json:"id"`
		Type    string          `json:"type"`
		Status  string          `json:"status"`
		Summary []struct{}      `json:"summary"`
		Content []reasoningText `json:"content"`
	}
	reasoningText struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
)

func newOutputText(text string, scores []json.RawMessage) outputText {
	if scores == nil {
		scores = []json.RawMessage{}
	}
	return outputText{Type: "output_text", Text: text, Annotations: []struct{}{}, Logprobs: scores}
}

// tokenScores are those of each token, as a chat completion has them and a response too.
func tokenScores(logprobs json.RawMessage) []json.RawMessage {
	var s struct{ Content []json.RawMessage }
	if json.Unmarshal(logprobs, &s) != nil {
		return nil
	}
	return s.Content
}

// begin is the response at its beginning.
func (r response) begin(c *completion) response {
	r.ID, r.Model, r.Created, r.Status = "resp_"+strings.TrimPrefix(c.ID, "chatcmpl-"), c.Model, c.Created, "in_progress" // the runtime's time: whoever goes on with a stream knows it
	if r.Created == 0 {
		r.Created = time.Now().Unix()
	}
	return r
}

// end is the response at its end.
func (r response) end(finish string, u usage) response {
	r.Status = "completed"
	switch finish {
	case "length":
		r.Status, r.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	case "content_filter":
		r.Status, r.Incomplete = "incomplete", &incomplete{"content_filter"}
	}
	if now := time.Now().Unix(); r.Status == "completed" {
		r.Completed = &now
	}
	r.Usage = &used{Input: u.Prompt, InputDetails: cachedTokens{Cached: u.Details.Cached}, Output: u.Completion, Details: thoughtTokens{u.Output.Reasoning}, Total: u.Prompt + u.Completion}
	return r
}

// response is a completion as OpenAI's response.
func (r response) response(c *completion) response {
	choice := &c.Choices[0]
	r = r.begin(c).end(choice.Finish, c.Usage)
	name := strings.TrimPrefix(r.ID, "resp_")
	r.Output = []any{}
	if thoughts := choice.Message.reasoning(); thoughts != "" {
		r.Output = append(r.Output, reasoningItem{"rs_" + name, "reasoning", "completed", []struct{}{}, []reasoningText{{"reasoning_text", thoughts}}})
	}
	if text := choice.Message.Content; text != "" || len(choice.Message.Calls) == 0 {
		r.Output = append(r.Output, messageItem{"msg_" + name, "message", r.Status, "assistant", []outputText{newOutputText(text, tokenScores(choice.Scores))}})
	}
	for _, call := range choice.Message.Calls {
		r.Output = append(r.Output, r.call("fc_"+call.ID, r.Status, call.ID, call.Function.Name, call.Function.Arguments))
	}
	return r
}

// call is a call of a function that a chat completion knows as whole.
func (r *response) call(id, status, callID, whole, arguments string) callItem {
	f, found := r.spaces[whole]
	if !found {
		f.Name = whole
	}
	return callItem{ID: id, Type: "function_call", Status: status, CallID: callID, Name: f.Name, Namespace: f.Namespace, Arguments: arguments}
}
