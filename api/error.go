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
	CodeRuntimeError   = "runtime_error" // what a runtime says of itself, with 5xx or in mid-stream; the two around it are what we say of it
	CodeStreamCut      = "stream_cut"
	CodeMoved          = "moved" // the instance gives way, and the request goes on at another one
	CodeTooLarge       = "body_too_large"
	CodeShutdown       = "shutting_down"
	CodeUnknownPath    = "unknown_path"
	CodeClientLeft     = "client_left"
	CodeRequestTimeout = "request_timeout"

	CodeForbiddenOrigin = "forbidden_origin"

	CodeEvicted = "evicted" // for the sake of a request with a higher priority

	CodeInvalidKey = "invalid_api_key"     // OpenAI's word, as the next but one
	CodeNotAllowed = "not_allowed"         // the key may not do that
	CodeRateLimit  = "rate_limit_exceeded" // of the key
	CodeNoIssuer   = "issuer_unavailable"  // which has to say whether a token is valid
	CodeSignIn     = "sign_in"             // the page's session has ended, or there is none
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

// ParseError reads the OpenAI error body of an answer; a body of another shape becomes the message, its first 500 bytes.
func ParseError(resp *http.Response, raw []byte) *Error {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Code    any    `json:"code"` // a text; some model servers have a number
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Error.Message == "" {
		return Errorf(resp.StatusCode, "", "%s: %s", resp.Status, bytes.TrimSpace(raw[:min(len(raw), 500)]))
	}
	code, _ := body.Error.Code.(string)
	return Errorf(resp.StatusCode, code, "%s", body.Error.Message)
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

// AsError turns any error into an [Error]: itself if it is one, one that says its status, code and
// time to come back (a method HTTP), the known errors of the standard library by the table here,
// and 500 for the rest.
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
	w := wireError{Message: e.Message, Type: cmp.Or(e.Type, errorTypes[e.Status], "api_error")}
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
	e.write(w, append(e.Body(ShapeOpenAI), '\n'))
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

// NotGoneOn is what a client is told of a stream that was cut, with CodeStreamCut; who could have gone on with it.
func NotGoneOn(who string) string {
	return "the answer was cut, and " + who + " does not go on with it"
}
