package responses

import (
	"bytes"
	"encoding/json"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Path is where responses are asked for.
const Path = "/v1/responses"

// Request is what matters here of a request for a response.
type Request struct {
	// Store says that the response is to be kept, and Background that its client does not wait for it.
	Store, Background bool
	// Stream says that it is to be streamed.
	Stream bool
	// Previous is the id of the response that it goes on from; empty: there is none.
	Previous string

	body  []byte
	input []byte // the field, as it is written; nil: there is none
}

// watched are the fields that may be there once, and in one spelling.
var watched = []string{"store", "previous_response_id", "background", "input", "stream"}

// Read reads a body. Of one that is no JSON object, or that asks for nothing that this package does, asks is false: it goes on as it is. An
// error is an *[api.Error]. The body must not be changed as long as the Request is used.
func Read(body []byte) (q Request, asks bool, err error) {
	fields := map[string][]byte{}
	watch := jsonfield.Watch{Names: watched}
	var ambiguous error
	if jsonfield.Each(body, func(name, value []byte) bool {
		if err := watch.See(name); err != nil && ambiguous == nil {
			ambiguous = err
		}
		fields[string(jsonfield.Text(name))] = value
		return true
	}) != nil {
		return Request{}, false, nil
	}
	if ambiguous != nil {
		return Request{}, false, api.BadRequest("", "%v", ambiguous)
	}
	q = Request{body: body, input: fields["input"]}
	for name, to := range map[string]any{"store": &q.Store, "background": &q.Background, "previous_response_id": &q.Previous} {
		if value := fields[name]; value != nil && json.Unmarshal(value, to) != nil {
			return Request{}, false, api.BadRequest(name, "%s is %.40s: want %s", name, value, map[bool]string{true: "the id of a response", false: "true or false"}[name == "previous_response_id"])
		}
	}
	q.Stream = string(fields["stream"]) == "true"
	if q.Background && string(fields["store"]) == "false" {
		return Request{}, false, api.BadRequest("store", "a response in the background is found again by its id: leave store out, or set it to true")
	}
	return q, q.Store || q.Background || q.Previous != "", nil
}

// items are those of the input, as a JSON array: a text is one message of the user's.
func (q *Request) items() ([]byte, error) {
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

// sent is the body that the next handler gets: with the conversation so far in front of the items. input is a JSON array.
func (q *Request) sent(so []byte, input []byte) []byte {
	body := q.body
	if q.Previous != "" {
		body = jsonfield.Set(body, "input", join(so, input))
	}
	body = jsonfield.Delete(jsonfield.Delete(body, "previous_response_id"), "background")
	return jsonfield.Set(body, "store", []byte("false"))
}

// join is an array of the items of two.
func join(a, b []byte) []byte {
	a, b = inner(a), inner(b)
	out := make([]byte, 0, len(a)+len(b)+3)
	out = append(append(out, '['), a...)
	if len(a) > 0 && len(b) > 0 {
		out = append(out, ',')
	}
	return append(append(out, b...), ']')
}

// inner is what is between the brackets of an array.
func inner(array []byte) []byte {
	array = bytes.TrimSpace(array)
	return bytes.TrimSpace(array[1 : len(array)-1])
}
