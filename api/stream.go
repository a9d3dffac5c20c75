package api

import (
	"encoding/json"
	"strings"
)

// Stream is the protocol of a stream: what it consists of, and what makes it whole.
type Stream int

// Protocols of streams.
const (
	StreamPlain      Stream = iota // server-sent events that may end anywhere
	StreamCompletion               // OpenAI's completions: a finish_reason, or [DONE]
	StreamResponses                // OpenAI's responses: response.completed, .failed or .incomplete
	StreamMessages                 // Anthropic's messages: message_stop
	StreamLines                    // Ollama's lines of JSON: "done":true
	StreamAgent                    // MLflow's AgentServer: [DONE], behind an error too
)

// EventsOf is the protocol of server-sent events that answer at a path of clients', whatever the method.
func EventsOf(path string) Stream {
	switch ShapeOf(path) {
	case ShapeMessages:
		return StreamMessages
	case ShapeMLflow:
		return StreamAgent
	case ShapeOllama: // it streams lines
		return StreamPlain
	}
	if strings.HasPrefix(path, "/v1/responses/") {
		return StreamResponses
	}
	return clientPaths[path].Stream
}

// Error returns err as the event that ends a stream that was cut; next is its number
// where events have numbers.
func (s Stream) Error(err *Error, next int) []byte {
	switch s {
	case StreamLines:
		return err.Line()
	case StreamMessages: // a client of Anthropic's looks at the name of an event first
		return append(append([]byte("event: error\ndata: "), err.Messages()...), '\n', '\n')
	case StreamResponses: // one of OpenAI's looks at the type in its data
		return append(append([]byte("event: error\ndata: "), err.ResponsesEvent(next)...), '\n', '\n')
	case StreamAgent:
		text, _ := json.Marshal(err.Message) // a string always marshals
		return append(append([]byte(`data: {"error": `), text...), "}\n\ndata: [DONE]\n\n"...)
	}
	return err.SSE()
}
