package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Endpoint is an address: "http://host:port" or "unix:/path/to/socket".
type Endpoint string

// CheckEndpoint returns why e is not valid, or nil.
func CheckEndpoint(e Endpoint) error {
	if path, found := strings.CutPrefix(string(e), "unix:"); found {
		if path == "" {
			return fmt.Errorf("endpoint %q: want unix: and a path", e)
		}
		// Linux allows 108 bytes, including the terminating zero.
		if len(path) > 107 {
			return fmt.Errorf("endpoint %q: the path has %d bytes, a Unix socket's may have 107", e, len(path))
		}
		return nil
	}
	u, err := url.Parse(string(e))
	if err != nil || u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("endpoint %q: want http://host:port or unix:/path", e)
	}
	return nil
}

// ParseEndpoint parses an [Endpoint]; host:port is short for http://host:port.
func ParseEndpoint(s string) (Endpoint, error) {
	e := Endpoint(strings.TrimSuffix(s, "/"))
	if _, unix := e.Socket(); !unix && !strings.Contains(s, "://") {
		if _, _, err := net.SplitHostPort(string(e)); err != nil {
			return "", fmt.Errorf("address %q: want host:port, http://host:port or unix:/path", s)
		}
		e = "http://" + e
	}
	return e, CheckEndpoint(e)
}

// ParseListen is [ParseEndpoint] for listening: the port is a number, 0 is any, and no host means all addresses.
func ParseListen(s string) (Endpoint, error) {
	e, err := ParseEndpoint(s)
	if err != nil {
		return "", err
	}
	if _, unix := e.Socket(); unix {
		return e, nil
	}
	_, address := e.Network()
	_, port, _ := net.SplitHostPort(address) // "" is no port either
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("address %q: want a port from 0 to 65535 at its end, such as 127.0.0.1:8080", s)
	}
	return e, nil
}

// ListenAddress is [ParseListen] without Unix sockets. It returns "host:port".
func ListenAddress(s string) (string, error) {
	e, err := ParseListen(s)
	if err != nil {
		return "", err
	}
	if _, unix := e.Socket(); unix {
		return "", fmt.Errorf("address %q: this part listens at no Unix socket: want host:port, such as 127.0.0.1:8080", s)
	}
	_, address := e.Network()
	return address, nil
}

// Socket returns the path of a Unix socket and reports whether e is one.
func (e Endpoint) Socket() (string, bool) { return strings.CutPrefix(string(e), "unix:") }

// Network returns the arguments for [net.Dial] and [net.Listen].
func (e Endpoint) Network() (network, address string) {
	if path, found := e.Socket(); found {
		return "unix", path
	}
	_, address, _ = strings.Cut(string(e), "://")
	return "tcp", strings.TrimSuffix(address, "/")
}

// URL returns the URL of path at e. A Unix socket's host encodes its path, for [NewTransport].
func (e Endpoint) URL(path string) string {
	if socket, found := e.Socket(); found {
		return fmt.Sprintf("http://%x%s%s", socket, socketHost, path)
	}
	return strings.TrimSuffix(string(e), "/") + path
}

const socketHost = ".socket"

func decodeSocket(host string) (string, bool) {
	enc, found := strings.CutSuffix(host, socketHost)
	var path []byte
	_, err := fmt.Sscanf(enc, "%x", &path)
	return string(path), found && err == nil
}

// Unreached returns the cause of an error of [http.Client], without the URL.
func Unreached(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// MaxAnswerHeader bounds the response header that any part reads.
const MaxAnswerHeader = 256 * KiB

// NewTransport returns a transport for every [Endpoint.URL], without proxy and compression.
func NewTransport(idlePerHost int) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr) // "" is no socket
			if path, found := decodeSocket(host); found {
				return dialer.DialContext(ctx, "unix", path)
			}
			return dialer.DialContext(ctx, network, addr)
		},
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,

		MaxResponseHeaderBytes: int64(MaxAnswerHeader),
	}
}

// WriteErrorTo is [WriteError] in the shape for r's path.
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

// ShapeOf returns the error shape for a path.
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

// SSE returns e as an event: data: {"error":{…}}.
func (e *Error) SSE() []byte {
	return append(append([]byte("data: "), e.Body(ShapeOpenAI)...), '\n', '\n')
}

var messagesTypes = map[int]string{
	http.StatusConflict:              "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// Messages returns e as Anthropic's error body.
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

// ResponsesEvent returns e as an "error" event of OpenAI's Responses API with a sequence number. Its client
// libraries read the object "error".
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

// Line returns e as a line of Ollama's API: {"error":"text"}.
func (e *Error) Line() []byte {
	body, _ := json.Marshal(map[string]string{"error": e.Message}) // strings always marshal
	return append(body, '\n')
}

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

// MLflowCode returns MLflow's code for a status.
func MLflowCode(status int) string {
	if c, found := mlflowCodes[status]; found {
		return c
	}
	if status >= http.StatusInternalServerError {
		return "INTERNAL_ERROR"
	}
	return "BAD_REQUEST"
}

// MLflow returns e as MLflow's error body, plus OpenAI's error object.
func (e *Error) MLflow() []byte {
	body, _ := json.Marshal(struct { // strings always marshal
		Code    string    `json:"error_code"`
		Message string    `json:"message"`
		Error   wireError `json:"error"`
	}{MLflowCode(e.Status), e.Message, e.wire()})
	return body
}

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

// EventsOf returns the protocol of events that answer at a client path.
func EventsOf(path string) Stream {
	switch ShapeOf(path) {
	case ShapeMessages:
		return StreamMessages
	case shapeMLflow:
		return StreamAgent
	case ShapeOllama:
		return StreamPlain
	}
	if strings.HasPrefix(path, "/v1/responses/") {
		return StreamResponses
	}
	return clientPaths[path].Stream
}

// Error returns err as the event that ends a cut stream; next numbers it.
func (s Stream) Error(err *Error, next int) []byte {
	switch s {
	case StreamLines:
		return err.Line()
	case StreamMessages: // Anthropic's clients read the event's name first
		return append(append([]byte("event: error\ndata: "), err.Messages()...), '\n', '\n')
	case StreamResponses: // OpenAI's clients read the type in the data
		return append(append([]byte("event: error\ndata: "), err.ResponsesEvent(next)...), '\n', '\n')
	case StreamAgent:
		text, _ := json.Marshal(err.Message)
		return append(append([]byte(`data: {"error": `), text...), "}\n\ndata: [DONE]\n\n"...)
	}
	return err.SSE()
}

// HeaderTurn carries a request's ID over one hop (package localhttp). The answer repeats it: it belongs to this
// request, and the connection may be reused.
const HeaderTurn = "X-Rouse-Turn"

// InTurn makes h's answers repeat [HeaderTurn]. Our servers on reused connections need it.
func InTurn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turn := r.Header[HeaderTurn]; turn != nil {
			delete(r.Header, HeaderTurn)
			w.Header()[HeaderTurn] = turn
		}
		h.ServeHTTP(w, r)
	})
}
