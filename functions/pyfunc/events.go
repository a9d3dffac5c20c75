package pyfunc

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// events makes of a stream of events one in AgentServer's shape: data lines only, as a
// comment fails Databricks' clients, an error as its text, [DONE] as the last event.
type events struct {
	line  []byte // the beginning of a line whose end has not come
	out   []byte
	open  bool // an event was begun and not ended
	ended bool // [DONE] was written: what follows is dropped
}

const done = "data: [DONE]\n\n"

// next takes a part of the stream and returns what is to be sent for it, which is valid until the next call.
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

// readLine translates the line that has come.
func (e *events) readLine() {
	line := bytes.TrimSuffix(bytes.TrimSuffix(e.line, []byte("\n")), []byte("\r"))
	e.line = e.line[:0]
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case len(line) == 0:
		e.closeEvent()
	case bytes.HasPrefix(line, []byte(control.UsageComment)): // it is for the activator, which takes it out
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

// errorIn finds the text of an error event: of OpenAI's, {"error": {"message": …}}, and of
// its responses' and Anthropic's, {"type": "error", …}.
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

// closeEvent ends the event that is open.
func (e *events) closeEvent() {
	if e.open {
		e.out = append(e.out, '\n')
		e.open = false
	}
}

// end ends the stream with an event.
func (e *events) end(last string) {
	e.closeEvent()
	e.out = append(e.out, last...)
	e.ended = true
}

func (e *events) fail(message string) {
	e.end(string(api.StreamAgent.Error(&api.Error{Message: message}, 0)))
}

// finish returns what is to be sent last. why is the failure with which the stream
// broke off; empty: it came to its own end.
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
