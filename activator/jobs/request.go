package jobs

import (
	"bytes"
	"encoding/json"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

const responsesPath = "/v1/responses"

type responseRequest struct {
	// Background means that the client does not wait for it.
	Store, Background bool
	Stream            bool
	Previous          string
	Conversation      string

	body  []byte
	input []byte // the raw field; nil: missing
}

// These fields may occur only once, and in one spelling.
var responseFields = []string{"store", "previous_response_id", "background", "input", "stream", "conversation"}

// readResponseRequest parses a body, which q refers to. asks is false if it is no JSON object or uses nothing of this
// package: it is passed on unchanged. An error is an *[api.Error].
func readResponseRequest(body []byte) (q responseRequest, asks bool, err error) {
	fields := map[string][]byte{}
	watch := jsonfield.Watch{Names: responseFields}
	var ambiguous error
	if jsonfield.Each(body, func(name, value []byte) bool {
		if err := watch.See(name); err != nil && ambiguous == nil {
			ambiguous = err
		}
		fields[string(jsonfield.Text(name))] = value
		return true
	}) != nil {
		return responseRequest{}, false, nil
	}
	if ambiguous != nil {
		return responseRequest{}, false, api.BadRequest("", "%v", ambiguous)
	}
	q = responseRequest{body: body, input: fields["input"]}
	for name, to := range map[string]any{"store": &q.Store, "background": &q.Background, "previous_response_id": &q.Previous} {
		if value := fields[name]; value != nil && (json.Unmarshal(value, to) != nil || string(value) == `""`) {
			return responseRequest{}, false, api.BadRequest(name, "%s is %.40s: want %s", name, value, map[bool]string{true: "the id of a response", false: "true or false"}[name == "previous_response_id"])
		}
	}
	if store.IsTurn(q.Previous) { // no response, though it is stored as one
		return responseRequest{}, false, noPrevious(store.ErrNotFound, q.Previous)
	}
	if q.Conversation, err = conversationIn(fields["conversation"]); err != nil {
		return responseRequest{}, false, err
	}
	if q.Conversation != "" && q.Previous != "" {
		return responseRequest{}, false, api.BadRequest("conversation", "the request goes on from a conversation and from a response: want conversation or previous_response_id")
	}
	q.Stream = string(fields["stream"]) == "true"
	if q.Background && string(fields["store"]) == "false" {
		return responseRequest{}, false, api.BadRequest("store", "a response in the background is found again by its id: leave store out, or set it to true")
	}
	return q, q.Store || q.Background || q.Previous != "" || q.Conversation != "", nil
}

func conversationIn(value []byte) (id string, err error) {
	var object struct{ ID string }
	if len(value) == 0 || string(value) != `""` && json.Unmarshal(value, &id) == nil { // null is no error
		return id, nil
	}
	if json.Unmarshal(value, &object) != nil || object.ID == "" {
		return "", api.BadRequest("conversation", "conversation is %.80s: want the id of a conversation", value)
	}
	return object.ID, nil
}

func (q *responseRequest) items() ([]byte, error) {
	switch v := bytes.TrimSpace(q.input); {
	case len(v) == 0 || string(v) == "null":
		return []byte("[]"), nil
	case v[0] == '"':
		return append(append([]byte(`[{"type":"message","role":"user","content":`), v...), "}]"...), nil
	case v[0] == '[':
		return v, nil
	default:
		return nil, api.BadRequest("input", "input is %.40s: want a text, or an array of items", v)
	}
}

func (q *responseRequest) bodyToSend(so []byte, input []byte) []byte {
	body := q.body
	if so != nil {
		body = jsonfield.Set(body, "input", join(so, input))
	}
	for _, name := range []string{"previous_response_id", "conversation", "background"} {
		body = jsonfield.Delete(body, name)
	}
	return jsonfield.Set(body, "store", []byte("false"))
}

func join(a, b []byte) []byte {
	a, b = inner(a), inner(b)
	out := make([]byte, 0, len(a)+len(b)+3)
	out = append(append(out, '['), a...)
	if len(a) > 0 && len(b) > 0 {
		out = append(out, ',')
	}
	return append(append(out, b...), ']')
}

func inner(array []byte) []byte {
	array = bytes.TrimSpace(array)
	return bytes.TrimSpace(array[1 : len(array)-1])
}
