package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Error is a failure that a client sees: an HTTP status and the OpenAI error body
// {"error":{"message","type","param","code"}}. Every error status that Rouse writes comes from one.
type Error struct {
	Status  int
	Message string
	// Type is the error class, such as "invalid_request_error"; empty: derived from Status.
	Type string
	// Param is the invalid field of the request; empty: null on the wire.
	Param string
	// Code is a stable code for programs to branch on; empty: null on the wire.
	Code string
	// RetryAfter, if positive, is sent as Retry-After (whole seconds, rounded up) and Retry-After-Ms.
	RetryAfter time.Duration
	// NoRetry sends X-Should-Retry: false, which keeps the official clients from retrying.
	NoRetry bool
}

// Codes that programs branch on, besides those that only one part gives: activator/queue and keys, functions/runtime and the page.
const (
	CodeModelNotFound  = "model_not_found"
	CodeHoldFull       = "hold_full"
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
	CodeMoved          = "moved" // the instance is going away, and the request continues at another one
	CodeTooLarge       = "body_too_large"
	CodeShutdown       = "shutting_down"
	CodeUnknownPath    = "unknown_path"
	CodeClientLeft     = "client_left"
	CodeRequestTimeout = "request_timeout"

	CodeInvalidKey = "invalid_api_key" // OpenAI's code
	CodeNotAllowed = "not_allowed"     // the key does not permit the request
)

// StatusClientClosed is nginx's status for a client that closed the connection; it is only counted, never sent.
const StatusClientClosed = 499

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error with a status, a code and a message.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest returns a 400 error that names the invalid field.
func BadRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// ParseError reads the OpenAI error body of a response. If the body has another shape, its first 500 bytes become the
// message.
func ParseError(resp *http.Response, raw []byte) *Error {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Code    any    `json:"code"` // a string; a number from some model servers
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Error.Message == "" {
		return Errorf(resp.StatusCode, "", "%s: %s", resp.Status, bytes.TrimSpace(raw[:min(len(raw), 500)]))
	}
	code, _ := body.Error.Code.(string)
	return Errorf(resp.StatusCode, code, "%s", body.Error.Message)
}

// WithRetryAfter returns a copy of e with RetryAfter set to d.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// errorTypes maps statuses to OpenAI's error classes.
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

// AsError converts any error into an [Error]. It returns an *Error as it is, uses the HTTP method of an error that
// has one, maps known errors of the standard library, and turns all others into a 500.
func AsError(err error) *Error {
	var e *Error
	var tooLarge *http.MaxBytesError
	var known interface {
		error
		HTTP() (status int, code string, retryAfter time.Duration)
	}
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &known):
		status, code, after := known.HTTP()
		return Errorf(status, code, "%s", known.Error()).WithRetryAfter(after)
	case errors.As(err, &tooLarge):
		return Errorf(http.StatusRequestEntityTooLarge, CodeTooLarge, "the body is larger than the limit of %s", Bytes(tooLarge.Limit))
	case errors.Is(err, context.Canceled):
		return Errorf(StatusClientClosed, CodeClientLeft, "the client closed the request")
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(http.StatusGatewayTimeout, CodeRequestTimeout, "the request took longer than its time limit")
	}
	return &Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

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

func (e *Error) wire() wireError {
	w := wireError{Message: e.Message, Type: cmp.Or(e.Type, errorTypes[e.Status], "api_error")}
	if e.Param != "" {
		w.Param = &e.Param
	}
	if e.Code != "" {
		w.Code = &e.Code
	}
	return w
}

// WriteError answers a request with err: status, headers and the OpenAI body. Nothing may have been written to w
// before.
func WriteError(w http.ResponseWriter, err error) {
	e := AsError(err)
	e.write(w, append(e.Body(ShapeOpenAI), '\n'))
}

// Answer answers a request with v, or with err if there is one.
func Answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		WriteError(w, err)
		return
	}
	WriteJSON(w, http.StatusOK, v)
}

// WriteJSON answers a request with v and a newline; v must marshal. Nothing may have been written to w before.
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
	_, _ = w.Write(append(body, '\n')) // an error means that the client left
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
	_, _ = w.Write(body) // an error means that the client left
}
