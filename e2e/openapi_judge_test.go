package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// httpExchange is a request and what was answered.
type httpExchange struct {
	Method, Path string
	Status       int
	Header       http.Header
	// Body is the answer's, as far as it was kept.
	Body []byte
	// Whole says that the answer ended as HTTP says, and that all of it was kept.
	Whole bool
}

// Judge says what is wrong with an answer; nil: nothing is, or its path is none that is described.
func (d *apiDescription) Judge(x httpExchange) error {
	key := d.find(x)
	if key == "" || !x.Whole && !isStream(x) {
		return nil
	}
	var err error
	switch {
	case x.Status >= http.StatusBadRequest:
		err = d.judgeFailure(x)
	case x.Status != http.StatusOK || x.Method == http.MethodHead:
	case isStream(x):
		err = d.judgeStream(key, x)
	default:
		if got := x.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
			err = fmt.Errorf("the content type is %q", got)
		} else {
			err = problem(d.answers[key], numbers(x.Body))
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %d: %w", x.Method, x.Path, x.Status, err)
	}
	return nil
}

func isStream(x httpExchange) bool {
	return strings.HasPrefix(x.Header.Get("Content-Type"), "text/event-stream")
}

// find is the key of an operation; empty: it is none of those described.
func (d *apiDescription) find(x httpExchange) string {
	method := x.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	path, found := strings.CutPrefix(x.Path, "/v1")
	if !found {
		return ""
	}
	if name, is := strings.CutPrefix(path, "/models/"); is && name != "" {
		path = "/models/{model}"
	}
	if rest, is := strings.CutPrefix(path, "/responses/"); is {
		id, action, _ := strings.Cut(rest, "/")
		if id != "" && (method == http.MethodGet && action == "" || method == http.MethodPost && action == "cancel") {
			method, path = http.MethodPost, "/responses" // it answers with the same
		}
	}
	if key := method + " " + path; d.answers[key] != nil {
		return key
	}
	return ""
}

func (d *apiDescription) judgeFailure(x httpExchange) error {
	if x.Header.Get("X-Request-Id") == "" {
		return errors.New("there is no X-Request-Id")
	}
	return problem(d.failure, x.Body)
}

// numbers makes numbers of vectors in base64, which a client may ask for and no description tells. What has none stays as it is.
func numbers(body []byte) []byte {
	var all map[string]json.RawMessage
	var list []map[string]any
	if json.Unmarshal(body, &all) != nil || json.Unmarshal(all["data"], &list) != nil {
		return body
	}
	for _, d := range list {
		text, is := d["embedding"].(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		if !is || err != nil || len(raw)%4 != 0 {
			return body
		}
		vector := make([]float32, len(raw)/4)
		if _, err := binary.Decode(raw, binary.LittleEndian, vector); err != nil {
			return body
		}
		d["embedding"] = vector
	}
	data, err := json.Marshal(list)
	if err != nil || len(list) == 0 {
		return body
	}
	all["data"] = data
	changed, err := json.Marshal(all)
	if err != nil {
		return body
	}
	return changed
}

// event is one of a stream.
type event struct {
	name string
	data []byte
}

// events reads the events of a stream that are whole. What follows the last empty line is cut off.
func events(body []byte) (all []event) {
	for {
		block, rest, found := bytes.Cut(body, []byte("\n\n"))
		if !found {
			return all
		}
		body = rest
		var e event
		for line := range bytes.Lines(block) {
			line = bytes.TrimRight(line, "\r\n")
			if name, is := bytes.CutPrefix(line, []byte("event:")); is {
				e.name = string(bytes.TrimSpace(name))
			}
			if data, is := bytes.CutPrefix(line, []byte("data:")); is {
				e.data = append(e.data, bytes.TrimPrefix(data, []byte(" "))...)
			}
		}
		if e.name != "" || e.data != nil {
			all = append(all, e)
		}
	}
}

func (d *apiDescription) judgeStream(key string, x httpExchange) error {
	all := events(x.Body)
	if strings.HasSuffix(key, "/responses") {
		return d.judgeResponse(all, x.Whole)
	}
	ended, failed := false, false
	first := struct {
		ID      string
		Created json.Number
	}{}
	for i, e := range all {
		if ended {
			return fmt.Errorf("event %d comes behind the last: %.200s", i, e.data)
		}
		if string(e.data) == "[DONE]" {
			if failed {
				return errors.New("[DONE] comes behind an error")
			}
			ended = true
			continue
		}
		if failed {
			return fmt.Errorf("event %d comes behind an error: %.200s", i, e.data)
		}
		if failed = isFailure(e.data); failed {
			if err := problem(d.failure, e.data); err != nil {
				return fmt.Errorf("event %d: %w", i, err)
			}
			continue
		}
		if err := problem(d.answers[key+" stream"], e.data); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		this := first
		if err := json.Unmarshal(e.data, &this); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if first.ID == "" {
			first = this
		}
		if this != first {
			return fmt.Errorf("event %d has the id %s of %s, the first %s of %s", i, this.ID, this.Created, first.ID, first.Created)
		}
	}
	if x.Whole && !ended && !failed {
		return errors.New("the stream ends without [DONE] and without an error")
	}
	return nil
}

// isFailure says whether an event is an error of the stream's.
func isFailure(data []byte) bool {
	var e struct{ Error json.RawMessage }
	return json.Unmarshal(data, &e) == nil && e.Error != nil && string(e.Error) != "null"
}

// ends are the types of the events that end a response.
var ends = []string{"response.completed", "response.failed", "response.incomplete", "error"}

// judgeResponse looks at the events of a response.
func (d *apiDescription) judgeResponse(all []event, whole bool) error {
	said := map[string]*strings.Builder{} // by item and part, what the parts of a text are together
	last := ""
	for i, e := range all {
		var head struct {
			Type            string
			Number          *int   `json:"sequence_number"`
			Item            string `json:"item_id"`
			Content         int    `json:"content_index"`
			Delta           json.RawMessage
			Text, Arguments *string
		}
		if err := json.Unmarshal(e.data, &head); err != nil {
			return fmt.Errorf("event %d: %w: %.200s", i, err, e.data)
		}
		schema := d.events[head.Type]
		switch {
		case slices.Contains(ends, last):
			return fmt.Errorf("the event %s comes behind the last: %s", head.Type, last)
		case head.Type != e.name:
			return fmt.Errorf("event %d has the name %q and the type %q", i, e.name, head.Type)
		case head.Number == nil || *head.Number != i:
			return fmt.Errorf("event %d has another number: %.200s", i, e.data)
		case schema == nil:
			return fmt.Errorf("event %d is of a type that is not described: %s", i, head.Type)
		}
		if err := problem(schema, e.data); err != nil {
			return fmt.Errorf("event %d, %s: %w", i, head.Type, err)
		}
		last = head.Type
		key := fmt.Sprintf("%s %d", head.Item, head.Content)
		var part string
		if json.Unmarshal(head.Delta, &part) == nil {
			if said[key] == nil {
				said[key] = &strings.Builder{}
			}
			said[key].WriteString(part)
		}
		for _, text := range []*string{head.Text, head.Arguments} {
			if text != nil && head.Item != "" && (said[key] == nil && *text != "" || said[key] != nil && said[key].String() != *text) {
				return fmt.Errorf("the text of %s is not what its parts are together: %.200s", head.Type, e.data)
			}
		}
	}
	if whole && !slices.Contains(ends, last) {
		return fmt.Errorf("the stream ends with %q", last)
	}
	return nil
}
