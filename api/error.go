package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a failure that a client sees: an HTTP status and the OpenAI error
// body {"error":{"message","type","param","code"}}. Every status that Rouse
// writes comes from one.
type Error struct {
	Status  int
	Message string
	// Type is the class, such as "invalid_request_error"; empty: derived from Status.
	Type string
	// Param is the field of the request that is wrong; empty: null on the wire.
	Param string
	// Code is a stable word a program can branch on; empty: null on the wire.
	Code string
	// RetryAfter, if positive, is sent as Retry-After (whole seconds, rounded up) and retry-after-ms.
	RetryAfter time.Duration
	// NoRetry sends x-should-retry: false, which stops the official clients from trying again.
	NoRetry bool
}

// Codes that programs branch on.
const (
	CodeModelNotFound  = "model_not_found"
	CodeContextLength  = "context_length_exceeded"
	CodeHoldFull       = "hold_full"
	CodeHoldTimeout    = "hold_timeout"
	CodeAsleep         = "asleep"
	CodeLoading        = "loading"
	CodeUnhealthy      = "unhealthy"
	CodeDraining       = "draining"
	CodeBusy           = "busy"
	CodeUnsupported    = "unsupported"
	CodeStaleEpoch     = "stale_epoch"
	CodeNoCapacity     = "no_capacity"
	CodeStartFailed    = "start_failed"
	CodeRuntimeFailed  = "runtime_failed"
	CodeStreamCut      = "stream_cut"
	CodeTooLarge       = "body_too_large"
	CodeShutdown       = "shutting_down"
	CodeUnknownPath    = "unknown_path"
	CodeClientLeft     = "client_left"
	CodeRequestTimeout = "request_timeout"

	CodeForbiddenOrigin = "forbidden_origin"
)

// StatusClientClosed is nginx's status for a client that left; it is only ever counted, never seen.
const StatusClientClosed = 499

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf makes an error with a status, a code and a message.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest makes a 400 that names the field at fault.
func BadRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// WithRetryAfter returns a copy of e that asks to come back after d.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// errorTypes are OpenAI's classes by status.
var errorTypes = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusConflict:              "invalid_request_error",
	http.StatusRequestEntityTooLarge: "invalid_request_error",
	http.StatusUnsupportedMediaType:  "invalid_request_error",
	http.StatusUnprocessableEntity:   "invalid_request_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "service_unavailable_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

// AsError turns any error into an [Error]: itself if it is one, the known
// errors of the standard library by the table here, and 500 for the rest.
func AsError(err error) *Error {
	var e *Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &tooLarge):
		return Errorf(http.StatusRequestEntityTooLarge, CodeTooLarge, "the body is larger than the limit of %s", Bytes(tooLarge.Limit))
	case errors.Is(err, context.Canceled):
		return Errorf(StatusClientClosed, CodeClientLeft, "the client closed the request")
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(http.StatusGatewayTimeout, CodeRequestTimeout, "the request took longer than its time limit")
	}
	return &Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

// wireError is the OpenAI error object.
type wireError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// MarshalJSON writes the whole body, {"error":{…}}.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]wireError{"error": e.wire()})
}

// wire is what stands in the body.
func (e *Error) wire() wireError {
	w := wireError{Message: e.Message, Type: e.Type}
	if w.Type == "" {
		w.Type = errorTypes[e.Status]
	}
	if w.Type == "" {
		w.Type = "api_error"
	}
	if e.Param != "" {
		w.Param = &e.Param
	}
	if e.Code != "" {
		w.Code = &e.Code
	}
	return w
}

// WriteError answers a request with err: status, headers and the OpenAI body.
// Nothing may have been written to w before.
func WriteError(w http.ResponseWriter, err error) {
	e := AsError(err)
	body, _ := e.MarshalJSON() // strings always marshal
	e.write(w, append(body, '\n'))
}

// WritePlainError is [WriteError] with the body of Ollama's own API, {"error":"text"}.
func WritePlainError(w http.ResponseWriter, err error) {
	e := AsError(err)
	e.write(w, e.Line())
}

// WriteMessagesError is [WriteError] with the body of Anthropic's API.
func WriteMessagesError(w http.ResponseWriter, err error) {
	e := AsError(err)
	e.write(w, append(e.Messages(), '\n'))
}

// WriteErrorTo is [WriteError] with a body of the shape that clients of r's path know.
func WriteErrorTo(w http.ResponseWriter, r *http.Request, err error) {
	switch ShapeOf(r.URL.Path) {
	case ShapeOllama:
		WritePlainError(w, err)
	case ShapeMessages:
		WriteMessagesError(w, err)
	default:
		WriteError(w, err)
	}
}

// Shape is the form of an error body.
type Shape int

// Shapes.
const (
	ShapeOpenAI   Shape = iota // {"error":{…}}
	ShapeOllama                // {"error":"text"}
	ShapeMessages              // Anthropic's: {"type":"error","error":{…}}
)

// ShapeOf is the shape that clients of a path know: Ollama's below /api/, Anthropic's below
// /v1/messages, else OpenAI's.
func ShapeOf(path string) Shape {
	switch {
	case strings.HasPrefix(path, "/api/"):
		return ShapeOllama
	case strings.HasPrefix(path, "/v1/messages"):
		return ShapeMessages
	}
	return ShapeOpenAI
}

// Body returns e as a body of that shape.
func (e *Error) Body(s Shape) []byte {
	switch s {
	case ShapeOllama:
		return e.Line()
	case ShapeMessages:
		return e.Messages()
	}
	body, _ := e.MarshalJSON() // strings always marshal
	return body
}

// WriteJSON answers a request with v, which must marshal, on a line of its own.
// Nothing may have been written to w before.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		WriteError(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have left: nothing to do about it
}

func (e *Error) write(w http.ResponseWriter, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Content-Length")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		h.Set("Retry-After-Ms", strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
	}
	if e.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // the client may have left: nothing to do about it
}

// SSE returns err as the event that ends a broken stream: data: {"error":{…}}.
func (e *Error) SSE() []byte {
	body, _ := e.MarshalJSON()
	return append(append([]byte("data: "), body...), '\n', '\n')
}

// messagesTypes are Anthropic's classes by status, where they are not OpenAI's.
var messagesTypes = map[int]string{
	http.StatusConflict:              "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// Messages returns err as the body of Anthropic's API, {"type":"error","error":{…}}.
func (e *Error) Messages() []byte {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    string `json:"code,omitempty"`
	}
	kind := cmp.Or(messagesTypes[e.Status], errorTypes[e.Status], "api_error")
	body, _ := json.Marshal(struct { // strings always marshal
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{kind, e.Message, e.Code}})
	return body
}

// ResponsesEvent returns err as the data of the event "error" of OpenAI's responses, whose number in
// its stream is next. The object "error" is what OpenAI's client libraries make an error of.
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

// Line returns err as the line that ends a broken stream of Ollama's own API: {"error":"text"}.
func (e *Error) Line() []byte {
	body, _ := json.Marshal(map[string]string{"error": e.Message}) // strings always marshal
	return append(body, '\n')
}
