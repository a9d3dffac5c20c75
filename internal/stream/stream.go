// Package stream reads the two kinds of streams in which model servers answer:
// server-sent events (WHATWG HTML, 9.2) and lines of JSON, as in Ollama's own
// API. Who passes a stream on uses it to know two things:
//
//   - [Splitter]: where an event ends, so that clients get whole events, at once;
//   - [Judge]: whether the stream ended whole. Client libraries take any end of a
//     connection for success, so one that is cut must be told by an event,
//     [Style.Error].
//
// The life of a stream:
//
//  1. Bytes are read. [Splitter.Split] says how many of them end whole events;
//     those are passed on, and shown to [Judge.See]. The rest waits for the next read.
//  2. The stream ends. [Judge.Whole] says whether it may end here.
//  3. If not, the event that is open is closed and the error event is written.
//
// What the package sees is never changed or copied. Its memory is a few bytes
// per stream, whatever a server sends. Nothing here is safe for many goroutines.
package stream

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// Style is the protocol of a stream: what it consists of, and what makes it whole.
type Style int

// Styles.
const (
	Plain      Style = iota // server-sent events that may end anywhere
	Completion              // OpenAI's completions: a finish_reason, or [DONE]
	Responses               // OpenAI's responses: response.completed, .failed or .incomplete
	Messages                // Anthropic's messages: message_stop
	Lines                   // Ollama's lines of JSON: "done":true
	Agent                   // MLflow's AgentServer: [DONE], behind an error too
)

// Of is the style of server-sent events at a path of clients'.
func Of(path string) Style {
	switch api.ShapeOf(path) {
	case api.ShapeMessages:
		return Messages
	case api.ShapeMLflow:
		return Agent
	}
	switch {
	case path == "/v1/chat/completions", path == "/v1/completions":
		return Completion
	case path == "/v1/responses", strings.HasPrefix(path, "/v1/responses/"):
		return Responses
	}
	return Plain
}

// Error returns err as the event that ends a stream of this style that was cut; next
// is its number, [Judge.Next], where events have numbers.
func (s Style) Error(err *api.Error, next int) []byte {
	switch s {
	case Lines:
		return err.Line()
	case Messages: // a client of Anthropic's looks at the name of an event first
		return append(append([]byte("event: error\ndata: "), err.Messages()...), '\n', '\n')
	case Responses: // one of OpenAI's looks at the type in its data
		return append(append([]byte("event: error\ndata: "), err.ResponsesEvent(next)...), '\n', '\n')
	case Agent:
		text, _ := json.Marshal(err.Message) // a string always marshals
		return append(append([]byte(`data: {"error": `), text...), "}\n\ndata: [DONE]\n\n"...)
	}
	return err.SSE()
}

// Splitter finds the ends of events. Of server-sent events that is an empty line
// (lines end with LF, CRLF or CR), of lines of JSON the end of a line. The zero
// value is one for server-sent events at the beginning of a stream.
type Splitter struct {
	// Lines says that the stream consists of lines of JSON.
	Lines bool

	within bool // the last line has begun and not ended
	cr     bool // the last byte was a CR, to which an LF belongs
}

// Split goes on with p, the bytes that follow those it has seen, and returns how
// many of them lie before the end of the last event that ends in p: 0 if none does.
func (s *Splitter) Split(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	if s.Lines {
		return bytes.LastIndexByte(p, '\n') + 1
	}
	at, end := 0, 0
	if s.cr && p[0] == '\n' {
		at = 1
	}
	s.cr = false
	crs := bytes.IndexByte(p, '\r') >= 0
	for at < len(p) {
		n := bytes.IndexByte(p[at:], '\n')
		if crs {
			n = bytes.IndexAny(p[at:], "\r\n")
		}
		if n < 0 {
			s.within = true
			break
		}
		empty := n == 0 && !s.within
		s.within = false
		if at += n + 1; p[at-1] == '\r' {
			if s.cr = at == len(p); !s.cr && p[at] == '\n' {
				at++
			}
		}
		if empty {
			end = at
		}
	}
	return end
}
