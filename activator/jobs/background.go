package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Exists returns an error if a request can't continue from a response; nil if previous is empty.
func (k *keeper) Exists(owner, previous string) error {
	if previous == "" {
		return nil
	}
	_, err := k.turns(owner, previous)
	return noPrevious(err, previous)
}

// Kept returns the body to store for a background request.
func (q *responseRequest) Kept() []byte {
	return jsonfield.Set(jsonfield.Delete(q.body, "background"), "store", []byte("true"))
}

// unfinished is a response without an answer, or without one yet, with all of a response's fields.
type unfinishedResponse struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	Created      int64           `json:"created_at"`
	Status       string          `json:"status"`
	Background   bool            `json:"background"`
	Error        *failure        `json:"error"`
	Incomplete   *struct{}       `json:"incomplete_details"`
	Instructions json.RawMessage `json:"instructions"`
	MaxTokens    json.RawMessage `json:"max_output_tokens"`
	Model        json.RawMessage `json:"model"`
	Output       []struct{}      `json:"output"`
	Parallel     json.RawMessage `json:"parallel_tool_calls"`
	Previous     json.RawMessage `json:"previous_response_id"`
	Reasoning    json.RawMessage `json:"reasoning"`
	Store        bool            `json:"store"`
	Temperature  json.RawMessage `json:"temperature"`
	Text         json.RawMessage `json:"text"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Tools        json.RawMessage `json:"tools"`
	TopP         json.RawMessage `json:"top_p"`
	Truncation   string          `json:"truncation"`
	Usage        *struct{}       `json:"usage"`
	User         json.RawMessage `json:"user"`
	Metadata     json.RawMessage `json:"metadata"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// unfinished returns the response object for a request without an answer yet. body is the request's.
func unfinished(l store.Job, body []byte, status string) any {
	u := unfinishedResponse{ID: l.ID, Object: "response", Created: l.Created.Unix(), Status: status, Background: true, Store: true, Output: []struct{}{}, Truncation: "disabled"}
	for name, f := range map[string]struct {
		to   *json.RawMessage
		none string
	}{
		"instructions": {&u.Instructions, "null"}, "max_output_tokens": {&u.MaxTokens, "null"}, "model": {&u.Model, `""`},
		"parallel_tool_calls": {&u.Parallel, "true"}, "previous_response_id": {&u.Previous, "null"}, "reasoning": {&u.Reasoning, `{"effort":null,"summary":null}`},
		"temperature": {&u.Temperature, "null"}, "text": {&u.Text, `{"format":{"type":"text"}}`}, "tool_choice": {&u.ToolChoice, `"auto"`},
		"tools": {&u.Tools, "[]"}, "top_p": {&u.TopP, "null"}, "user": {&u.User, "null"}, "metadata": {&u.Metadata, "{}"},
	} {
		*f.to = json.RawMessage(f.none)
		if value, found := jsonfield.Find(body, name); found && string(value) != "null" {
			*f.to = value
		}
	}
	return u
}

// KeepUnfinished stores a response without an answer for its request, with why if it failed. The errors are those of
// [store.Store.KeepResponse].
func (k *keeper) KeepUnfinished(claim *store.Claim, body []byte, status string, why *api.Error) error {
	j := claim.Job()
	u, _ := unfinished(j, body, status).(unfinishedResponse)
	if why != nil {
		u.Error = &failure{Code: "server_error", Message: why.Message}
		if why.Status == http.StatusTooManyRequests {
			u.Error.Code = "rate_limit_exceeded"
		}
	}
	answer, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("tell how %s ended: %w", j.ID, err)
	}
	q, _, err := readResponseRequest(body)
	input := []byte("[]")
	if err == nil {
		if items, err := q.items(); err == nil { // otherwise the invalid input is why it failed
			input = items
		}
	}
	j.Status, j.Previous, j.Background = status, q.Previous, true
	return k.store.KeepResponse(j, nil, input, answer, claim)
}
