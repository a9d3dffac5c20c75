package api

import (
	"encoding/json"
	"strings"
)

// Stream is the protocol of a stream: its units, and what marks its end.
type Stream int

// Stream protocols.
const (
	StreamPlain      Stream = iota // server-sent events that may end anywhere
	StreamCompletion               // OpenAI's completions: a finish_reason, or [DONE]
	StreamResponses                // OpenAI's responses: response.completed, .failed or .incomplete
	StreamMessages                 // Anthropic's messages: message_stop
	StreamLines                    // Ollama's lines of JSON: "done":true
	StreamAgent                    // MLflow's AgentServer: [DONE], also after an error
)

// EventsOf returns the protocol of server-sent events that answer at a client path, for any method.
func EventsOf(path string) Stream {
	switch ShapeOf(path) {
	case ShapeMessages:
		return StreamMessages
	case shapeMLflow:
		return StreamAgent
	case ShapeOllama: // Ollama streams lines
		return StreamPlain
	}
	if strings.HasPrefix(path, "/v1/responses/") {
		return StreamResponses
	}
	return clientPaths[path].Stream
}

// Error returns err as the event that ends a cut stream; next is its sequence number, if events have numbers.
func (s Stream) Error(err *Error, next int) []byte {
	switch s {
	case StreamLines:
		return err.Line()
	case StreamMessages: // Anthropic's clients read the event's name first
		return append(append([]byte("event: error\ndata: "), err.Messages()...), '\n', '\n')
	case StreamResponses: // OpenAI's clients read the type in the data
		return append(append([]byte("event: error\ndata: "), err.ResponsesEvent(next)...), '\n', '\n')
	case StreamAgent:
		text, _ := json.Marshal(err.Message) // a string always marshals
		return append(append([]byte(`data: {"error": `), text...), "}\n\ndata: [DONE]\n\n"...)
	}
	return err.SSE()
}
