package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Error is a failure that a client sees. Every error status that Rouse writes comes from one.
type Error struct {
	Status  int
	Message string
	// Empty: derived from Status.
	Type string
	// The invalid field.
	Param string
	// Programs branch on it.
	Code string
	// Sent as Retry-After (seconds, rounded up) and Retry-After-Ms, if positive.
	RetryAfter time.Duration
	// NoRetry sends X-Should-Retry: false, for the official clients.
	NoRetry bool
}

// Codes besides those of activator/queue and keys, functions/runtime and the page.
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
	CodeMoved          = "moved" // the request continues elsewhere
	CodeTooLarge       = "body_too_large"
	CodeShutdown       = "shutting_down"
	CodeUnknownPath    = "unknown_path"
	CodeClientLeft     = "client_left"
	CodeRequestTimeout = "request_timeout"

	CodeInvalidKey = "invalid_api_key" // OpenAI's code
	CodeNotAllowed = "not_allowed"
)

// StatusClientClosed is nginx's status, only counted.
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

// ParseError reads an OpenAI error body. Of another one the first 500 bytes are the message.
func ParseError(resp *http.Response, raw []byte) *Error {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Code    any    `json:"code"` // a number from some model servers
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Error.Message == "" {
		return Errorf(resp.StatusCode, "", "%s: %s", resp.Status, bytes.TrimSpace(raw[:min(len(raw), 500)]))
	}
	code, _ := body.Error.Code.(string)
	return Errorf(resp.StatusCode, code, "%s", body.Error.Message)
}

// WithRetryAfter returns a copy of e with RetryAfter set.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

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

// AsError converts err: an *Error stays, one with a method HTTP and known ones of the standard library are
// translated, others are a 500.
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

// WriteError answers with err. Nothing may have been written to w.
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

// WriteJSON answers with v, which must marshal. Nothing may have been written to w.
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
	_, _ = w.Write(append(body, '\n')) // the client left
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
	_, _ = w.Write(body) // the client left
}

// Decode decodes the only JSON value of in. An unknown field is an error, as [Explain]'s.
func Decode(in io.Reader, to any) error {
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return Explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value: remove it")
	}
	return nil
}

// QuotaFull recognizes Kubernetes' message about a full ResourceQuota.
func QuotaFull(message string) bool { return strings.Contains(message, "exceeded quota") }

// Explain puts an error of decoding JSON or YAML into words for people. Other errors stay.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var at *time.ParseError
	text, known := strings.CutPrefix(err.Error(), "json: ")
	switch {
	case errors.As(err, &wrong):
		var path []string
		for name := range strings.SplitSeq(wrong.Field, ".") {
			if !strings.ContainsFunc(name[:min(len(name), 1)], unicode.IsUpper) { // an embedded struct
				path = append(path, name)
			}
		}
		text = fmt.Sprintf("%s is a JSON %s: want %s", cmp.Or(strings.Join(path, "."), "it"), wrong.Value, wanted(wrong.Type.Kind().String()))
	case errors.As(err, &syntax):
		text = fmt.Sprintf("it is not JSON: %v at byte %d", err, syntax.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "it is not whole: its JSON ends too early"
	case errors.As(err, &at):
		text = fmt.Sprintf("%s is no time: want one such as 2030-01-02T03:04:05Z", at.Value)
	case strings.HasPrefix(text, "Time."): // encoding/json has no type for it
		text = "a time is not a string: want one such as \"2030-01-02T03:04:05Z\""
	case strings.HasPrefix(text, "yaml: "):
		wrongYAML := regexp.MustCompile("cannot unmarshal !!(\\w+) (?:(`.*`) )?into (.*)")
		text = wrongYAML.ReplaceAllStringFunc(strings.TrimPrefix(text[len("yaml: "):], "unmarshal errors:\n  "), func(s string) string {
			m := wrongYAML.FindStringSubmatch(s)
			return cmp.Or(m[2], "it") + " is of the YAML type " + m[1] + ": want " + wanted(m[3])
		})
	case !known:
		return err
	}
	return errors.New(text)
}

func wanted(kind string) string {
	switch strings.TrimRight(kind, "0123456789") {
	case "int", "uint":
		return "a whole number"
	case "float":
		return "a number"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	case "time.Duration":
		return "a duration with a unit, such as 30s"
	}
	if strings.HasPrefix(kind, "[") || kind == "slice" {
		return "a list"
	}
	return "an object"
}

// ParseDuration is [time.ParseDuration] with weeks and days of 24 hours before other units: 2w, 3d12h.
func ParseDuration(text string) (time.Duration, error) {
	wrong := errors.New("want a duration with a unit, such as 90s, 10m, 12h, 3d or 2w")
	var sum time.Duration
	rest := text
	for _, u := range []struct {
		name string
		time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil || time.Duration(n) > (math.MaxInt64-sum)/u.Duration {
			return 0, wrong
		}
		if sum, rest = sum+time.Duration(n)*u.Duration, after; rest == "" {
			return sum, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest != text && (d < 0 || d > math.MaxInt64-sum) {
		return 0, wrong
	}
	return sum + d, nil
}
