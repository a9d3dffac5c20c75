package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error is a failure with a status and OpenAI's body {"error":{"message","type","param","code"}}. For a prompt that is
// too long the body has llama.cpp's n_prompt_tokens and n_ctx too.
type Error struct {
	Status                     int
	Message                    string
	Param                      string        // of the request; "": null on the wire
	Code                       string        // "": null on the wire
	RetryAfter                 time.Duration // 0: unspecified
	Tokens, MaxTokens, Context int
}

const (
	codeModelNotFound = "model_not_found"
	codeContextLength = "context_length_exceeded"
	codeAsleep        = "asleep"
	codeStreamCut     = "stream_cut"
	codeUnhealthy     = "unhealthy"
	codeBusy          = "busy"
	codeStepFailed    = "runtime_failed"
	codeShutdown      = "shutting_down"
	codeUnknownPath   = "unknown_path"
	codeTooLarge      = "body_too_large"
)

// Error implements error.
func (e *Error) Error() string { return e.Message }

func errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func badRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// asError makes unknown errors a 500.
func asError(err error) *Error {
	var e *Error
	var known interface {
		error
		HTTP() (status int, code string, retryAfter time.Duration)
	}
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &known):
		status, code, after := known.HTTP()
		return &Error{Status: status, Code: code, RetryAfter: after, Message: known.Error()}
	case errors.Is(err, context.Canceled):
		return errorf(statusClientClosed, "client_left", "the client closed the request")
	case errors.Is(err, context.DeadlineExceeded):
		return errorf(http.StatusGatewayTimeout, "request_timeout", "the request took longer than its time limit")
	}
	return &Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

// statusClientClosed is nginx's; it is sent only with [usageHeader].
const statusClientClosed = 499

// errorTypes are OpenAI's, by status.
var errorTypes = map[int]string{
	http.StatusNotFound:           "not_found_error",
	http.StatusTooManyRequests:    "rate_limit_error",
	http.StatusServiceUnavailable: "service_unavailable_error",
	http.StatusGatewayTimeout:     "timeout_error",
}

// MarshalJSON returns the whole body.
func (e *Error) MarshalJSON() ([]byte, error) {
	kind := errorTypes[e.Status]
	switch {
	case kind != "":
	case e.Status < http.StatusInternalServerError:
		kind = "invalid_request_error"
	default:
		kind = "api_error"
	}
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
		Tokens  int     `json:"n_prompt_tokens,omitempty"`
		Most    int     `json:"max_tokens,omitempty"`
		Context int     `json:"n_ctx,omitempty"`
	}
	return json.Marshal(map[string]object{"error": {e.Message, kind, orNull(e.Param), orNull(e.Code), e.Tokens, e.MaxTokens, e.Context}})
}

// event returns e as the event that ends a stream.
func (e *Error) event() []byte {
	body, _ := e.MarshalJSON() // strings always marshal
	return append(append([]byte("data: "), body...), '\n', '\n')
}

// Nothing may have been written before writeError.
func writeError(w http.ResponseWriter, e *Error) {
	body, _ := e.MarshalJSON()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Content-Length")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
		h.Set("Retry-After-Ms", strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(body, '\n'))
}

// HeaderTurn carries a request's id, which the answer repeats: a client that reuses connections checks it.
const HeaderTurn = "X-Rouse-Turn"

func inTurn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turn := r.Header[HeaderTurn]; turn != nil {
			w.Header()[HeaderTurn] = turn
		}
		h.ServeHTTP(w, r)
	})
}
