package pyfunc

import (
	"bytes"
	"encoding/json"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// events makes of a stream of events one in AgentServer's shape: data lines only, as a
// comment fails Databricks' clients, an error as its text, [DONE] as the last event. What it returns is good until
// the next call.
type events struct {
	line  []byte // the beginning of a line whose end has not come
	out   []byte
	open  bool // an event was begun and not ended
	ended bool // [DONE] was written: what follows is dropped
}

const done = "data: [DONE]\n\n"

// next takes a part of the stream and returns what is to be sent for it.
func (e *events) next(p []byte) []byte {
	e.out = e.out[:0]
	for len(p) > 0 && !e.ended {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			e.line = append(e.line, p...)
			break
		}
		line := p[:i]
		if len(e.line) > 0 {
			e.line = append(e.line, line...)
			line = e.line
		}
		e.whole(bytes.TrimSuffix(line, []byte("\r")))
		e.line, p = e.line[:0], p[i+1:]
	}
	return e.out
}

// whole takes one line.
func (e *events) whole(line []byte) {
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case len(line) == 0:
		if e.open {
			e.out = append(e.out, '\n')
			e.open = false
		}
	case bytes.HasPrefix(line, []byte(control.UsageComment)): // it is for the activator, which takes it out
		e.out = append(append(e.out, line...), '\n')
	case isData:
		data = bytes.TrimPrefix(data, []byte(" "))
		if message, found := errorIn(data); found {
			e.fail(message)
			return
		}
		if bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]")) {
			e.finish()
			return
		}
		e.out = append(append(append(e.out, "data: "...), data...), '\n')
		e.open = true
	}
}

// errorIn finds the text of an error event: of OpenAI's, {"error": {"message": …}}, and of
// its responses' and Anthropic's, {"type": "error", …}.
func errorIn(data []byte) (message string, found bool) {
	head := bytes.TrimLeft(data[:min(len(data), 32)], "{ ")
	if !bytes.HasPrefix(head, []byte(`"error"`)) && !bytes.HasPrefix(head, []byte(`"type":"error"`)) && !bytes.HasPrefix(head, []byte(`"type": "error"`)) {
		return "", false
	}
	var body struct {
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil {
		return "", false
	}
	switch none := len(body.Error) == 0 || string(body.Error) == "null"; {
	case none && body.Type == "error":
		return body.Message, true
	case none:
		return "", false
	}
	var object struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body.Error, &message) == nil {
		return message, true
	}
	if json.Unmarshal(body.Error, &object) == nil && object.Message != "" {
		return object.Message, true
	}
	return string(body.Error), true
}

// close ends the event that is open.
func (e *events) close() {
	if e.open {
		e.out = append(e.out, '\n')
		e.open = false
	}
}

func (e *events) finish() {
	e.close()
	e.out = append(e.out, done...)
	e.ended = true
}

func (e *events) fail(message string) {
	e.close()
	e.out = append(e.out, api.StreamAgent.Error(&api.Error{Message: message}, 0)...)
	e.ended = true
}

// end returns what is to be sent last. why is the failure with which the stream
// broke off; empty: it came to its own end.
func (e *events) end(why string) []byte {
	e.out = e.out[:0]
	if e.ended {
		return nil
	}
	if why != "" {
		e.fail(why)
		return e.out
	}
	if len(e.line) > 0 {
		e.whole(bytes.TrimSuffix(e.line, []byte("\r")))
		e.line = nil
	}
	if !e.ended {
		e.finish()
	}
	return e.out
}
