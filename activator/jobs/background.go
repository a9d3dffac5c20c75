package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

func (k *keeper) goesOn(owner string, q responseRequest) error {
	if q.Conversation != "" {
		_, err := k.findConversation(owner, q.Conversation)
		return noConversation(err, q.Conversation)
	}
	_, err := k.turns(owner, q.Previous)
	return noPrevious(err, q.Previous)
}

func (q *responseRequest) Kept() []byte {
	return jsonfield.Set(jsonfield.Delete(q.body, "background"), "store", []byte("true"))
}

// emptyResponse has a response's fields in OpenAI's order.
const emptyResponse = `{"id":"","object":"response","created_at":0,"status":"","background":true,"error":null,"incomplete_details":null,"instructions":null,` +
	`"max_output_tokens":null,"model":"","output":[],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":true,` +
	`"temperature":null,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":null,"truncation":"disabled","usage":null,"user":null,"metadata":{}}`

// unfinished returns the response object for a request without an answer. body is the request's; why is set if it failed.
func unfinished(l store.Job, body []byte, status string, why *api.Error) json.RawMessage {
	r := jsonfield.Open([]byte(emptyResponse))
	for _, name := range []string{"instructions", "max_output_tokens", "model", "parallel_tool_calls", "previous_response_id", "reasoning", "temperature", "text",
		"tool_choice", "tools", "top_p", "user", "metadata"} {
		if value, found := jsonfield.Find(body, name); found && string(value) != "null" {
			r.Set(name, value)
		}
	}
	set := func(name string, v any) {
		raw, _ := json.Marshal(v)
		r.Set(name, raw)
	}
	value, _ := jsonfield.Find(body, "conversation")
	if id, _ := conversationIn(value); id != "" { // checked when the request came
		set("conversation", map[string]string{"id": id})
	}
	set("id", l.ID)
	set("created_at", l.Created.Unix())
	set("status", status)
	if why != nil {
		code := "server_error"
		if why.Status == http.StatusTooManyRequests {
			code = "rate_limit_exceeded"
		}
		set("error", map[string]string{"code": code, "message": why.Message})
	}
	return r.Bytes()
}

// KeepUnfinished stores a response without an answer. The errors are those of [store.Store.KeepResponse].
func (k *keeper) KeepUnfinished(claim *store.Claim, body []byte, status string, why *api.Error) error {
	j := claim.Job()
	answer, err := json.Marshal(unfinished(j, body, status, why))
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
