package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

// WriteErrorTo is [WriteError] with a body in the shape expected by clients of r's path.
func WriteErrorTo(w http.ResponseWriter, r *http.Request, err error) {
	e := AsError(err)
	e.write(w, append(bytes.TrimSpace(e.Body(ShapeOf(r.URL.Path))), '\n'))
}

// Shape is the form of an error body.
type Shape int

// Shapes.
const (
	ShapeOpenAI   Shape = iota // {"error":{…}}
	ShapeOllama                // {"error":"text"}
	ShapeMessages              // Anthropic's: {"type":"error","error":{…}}
	shapeMLflow                // of MLflow's scoring server: {"error_code":…,"message":…}
)

// ShapeOf returns the error shape for a path: Ollama's below /api/, Anthropic's below /v1/messages, MLflow's at
// /invocations and the paths of mlflow.deployments and Databricks, otherwise OpenAI's.
func ShapeOf(path string) Shape {
	switch {
	case strings.HasPrefix(path, "/api/2.0/"):
		return shapeMLflow
	case strings.HasPrefix(path, "/api/"):
		return ShapeOllama
	case strings.HasPrefix(path, "/v1/messages"):
		return ShapeMessages
	case path == "/invocations", strings.HasSuffix(path, "/invocations") && (strings.HasPrefix(path, "/serving-endpoints/") || strings.HasPrefix(path, "/endpoints/")):
		return shapeMLflow
	}
	return ShapeOpenAI
}

// Body returns e as an error body of shape s.
func (e *Error) Body(s Shape) []byte {
	switch s {
	case ShapeOllama:
		return e.Line()
	case ShapeMessages:
		return e.Messages()
	case shapeMLflow:
		return e.MLflow()
	}
	body, _ := e.MarshalJSON() // strings always marshal
	return body
}

// SSE returns e as the event that ends a broken stream: data: {"error":{…}}.
func (e *Error) SSE() []byte {
	return append(append([]byte("data: "), e.Body(ShapeOpenAI)...), '\n', '\n')
}

// messagesTypes are Anthropic's error classes by status where they differ from OpenAI's.
var messagesTypes = map[int]string{
	http.StatusConflict:              "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// Messages returns e as an error body of Anthropic's API, {"type":"error","error":{…}}.
func (e *Error) Messages() []byte {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    string `json:"code,omitempty"`
	}
	body, _ := json.Marshal(struct { // strings always marshal
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{cmp.Or(messagesTypes[e.Status], errorTypes[e.Status], "api_error"), e.Message, e.Code}})
	return body
}

// ResponsesEvent returns e as the data of an "error" event of OpenAI's Responses API; next is its sequence number.
// OpenAI's client libraries build their error from the object "error".
func (e *Error) ResponsesEvent(next int) []byte {
	w := e.wire()
	body, _ := json.Marshal(struct { // strings always marshal
		Type     string    `json:"type"`
		Sequence int       `json:"sequence_number"`
		Code     *string   `json:"code"`
		Message  string    `json:"message"`
		Param    *string   `json:"param"`
		Error    wireError `json:"error"`
	}{"error", next, w.Code, w.Message, w.Param, w})
	return body
}

// Line returns e as the line that ends a broken stream of Ollama's API: {"error":"text"}.
func (e *Error) Line() []byte {
	body, _ := json.Marshal(map[string]string{"error": e.Message}) // strings always marshal
	return append(body, '\n')
}

// mlflowCodes maps statuses to MLflow's error codes.
var mlflowCodes = map[int]string{
	http.StatusBadRequest:          "BAD_REQUEST",
	http.StatusUnauthorized:        "UNAUTHENTICATED",
	http.StatusForbidden:           "PERMISSION_DENIED",
	http.StatusNotFound:            "NOT_FOUND",
	http.StatusConflict:            "RESOURCE_CONFLICT",
	http.StatusUnprocessableEntity: "INVALID_PARAMETER_VALUE",
	http.StatusTooManyRequests:     "RESOURCE_EXHAUSTED",
	StatusClientClosed:             "CANCELLED",
	http.StatusInternalServerError: "INTERNAL_ERROR",
	http.StatusNotImplemented:      "NOT_IMPLEMENTED",
	http.StatusServiceUnavailable:  "TEMPORARILY_UNAVAILABLE",
	http.StatusGatewayTimeout:      "DEADLINE_EXCEEDED",
}

// MLflowCode returns MLflow's error code for a status; unknown ones map to INTERNAL_ERROR (5xx) or BAD_REQUEST.
func MLflowCode(status int) string {
	if c, found := mlflowCodes[status]; found {
		return c
	}
	if status >= http.StatusInternalServerError {
		return "INTERNAL_ERROR"
	}
	return "BAD_REQUEST"
}

// MLflow returns e as an error body of MLflow's scoring server, plus the OpenAI error object.
func (e *Error) MLflow() []byte {
	body, _ := json.Marshal(struct { // strings always marshal
		Code    string    `json:"error_code"`
		Message string    `json:"message"`
		Error   wireError `json:"error"`
	}{MLflowCode(e.Status), e.Message, e.wire()})
	return body
}
