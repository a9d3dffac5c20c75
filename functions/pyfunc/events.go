package pyfunc

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// events converts a stream to AgentServer's shape: data lines only, since comments fail Databricks' clients; an error is its text, and
// [DONE] is the last event.
type events struct {
	line  []byte // the beginning of an incomplete line
	out   []byte
	open  bool // an event was begun and not ended
	ended bool // [DONE] was written: the rest is dropped
}

const done = "data: [DONE]\n\n"

// next returns the output for a part of the stream, valid until the next call.
func (e *events) next(p []byte) []byte {
	e.out = e.out[:0]
	for line := range bytes.Lines(p) {
		if e.ended {
			break
		}
		if e.line = append(e.line, line...); bytes.HasSuffix(line, []byte("\n")) {
			e.readLine()
		}
	}
	return e.out
}

func (e *events) readLine() {
	line := bytes.TrimSuffix(bytes.TrimSuffix(e.line, []byte("\n")), []byte("\r"))
	e.line = e.line[:0]
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case len(line) == 0:
		e.closeEvent()
	case bytes.HasPrefix(line, []byte(control.UsageComment)): // for the activator
		e.out = append(append(e.out, line...), '\n')
	case !isData:
	case bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]")):
		e.end(done)
	default:
		if message, found := errorIn(data); found {
			e.fail(message)
			return
		}
		e.out = append(append(append(e.out, "data: "...), bytes.TrimPrefix(data, []byte(" "))...), '\n')
		e.open = true
	}
}

// errorIn returns the text of an error event: OpenAI's, {"error": {"message": …}}, or its responses' and Anthropic's, {"type": "error",
// …}.
func errorIn(data []byte) (message string, found bool) {
	head := strings.ReplaceAll(string(data[:min(len(data), 32)]), " ", "")
	if !strings.HasPrefix(head, `{"error"`) && !strings.HasPrefix(head, `{"type":"error"`) {
		return "", false
	}
	var body struct {
		Type    string
		Message string
		Error   json.RawMessage
	}
	if json.Unmarshal(data, &body) != nil {
		return "", false
	}
	if len(body.Error) == 0 || string(body.Error) == "null" {
		return body.Message, body.Type == "error"
	}
	var object struct{ Message string }
	if json.Unmarshal(body.Error, &message) != nil {
		message = string(body.Error)
		if json.Unmarshal(body.Error, &object) == nil && object.Message != "" {
			message = object.Message
		}
	}
	return message, true
}

func (e *events) closeEvent() {
	if e.open {
		e.out = append(e.out, '\n')
		e.open = false
	}
}

func (e *events) end(last string) {
	e.closeEvent()
	e.out = append(e.out, last...)
	e.ended = true
}

func (e *events) fail(message string) {
	e.end(string(api.StreamAgent.Error(&api.Error{Message: message}, 0)))
}

// why is the failure that broke the stream, if one did.
func (e *events) finish(why string) []byte {
	e.out = e.out[:0]
	switch {
	case e.ended:
	case why != "":
		e.fail(why)
	default:
		if len(e.line) > 0 {
			e.readLine()
		}
		if !e.ended {
			e.end(done)
		}
	}
	return e.out
}
