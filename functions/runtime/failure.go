package runtime

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

type complaint struct {
	Message json.RawMessage `json:"message"`
	Type    json.RawMessage `json:"type"`
	Param   json.RawMessage `json:"param"`
	Code    json.RawMessage `json:"code"`
}

// failure converts a server's error into the shape that the path's clients know:
//
//  1. Ollama's {"error":"text"} on its own API, and Anthropic's on /v1/messages, stay.
//  2. OpenAI's {"error":{…}} with fields of the right types stays, byte for byte. A number in code (vLLM, llama-server) becomes OpenAI's
//     code, or null.
//  3. A flat {"message":…} (SGLang, older vLLM), {"error":"text"} (Ollama) and {"detail":…} (FastAPI) are wrapped.
//  4. Any other text but HTML becomes the message.
//  5. From status 500, texts name paths, addresses and inputs: clients learn only that the server failed or is busy.
func failure(path string, status int, body []byte) []byte {
	e, right := understood(path, status, body)
	switch {
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented: // 5.
		e = &api.Error{Status: status, Code: codeFor(status, e.Message), Message: "the model server failed: its operator finds out why in its log"}
		switch e.Code {
		case api.CodeBusy:
			e.Message = "the model server is busy: try again later"
		case "":
			e.Code = "runtime_error"
		}
	case right:
		return body
	case e.Code == "":
		e.Code = codeFor(status, e.Message)
	}
	return e.Body(api.ShapeOf(path))
}

func isMessages(path string) bool { return api.ShapeOf(path) == api.ShapeMessages }

func understood(path string, status int, body []byte) (e *api.Error, right bool) {
	var outer struct {
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
		complaint
	}
	ok := json.Unmarshal(body, &outer) == nil
	kind, _ := str(outer.Type)
	plain, isText := str(outer.Error)
	var c complaint
	e = &api.Error{Status: status}
	switch {
	case ok && json.Unmarshal(outer.Error, &c) == nil && len(c.Message) > 0:
		c.into(e)
		right = c.proper() && !isMessages(path) || kind == "error" && isMessages(path) // 2., 1.
	case ok && isText: // 1., 3.
		e.Message, right = plain, api.ShapeOf(path) == api.ShapeOllama
	case ok && len(outer.Message) > 0:
		outer.into(e)
	case ok && len(outer.Detail) > 0:
		e.Message, e.Param = detail(outer.Detail)
	default: // 4.
		e.Message = readable(status, body)
	}
	return e, right
}

// proper reports whether c has OpenAI's types.
func (c complaint) proper() bool {
	for _, raw := range []json.RawMessage{c.Message, c.Type} {
		if _, isText := str(raw); !isText {
			return false
		}
	}
	for _, raw := range []json.RawMessage{c.Param, c.Code} {
		if _, isText := str(raw); !isText && !bytes.Equal(raw, []byte("null")) {
			return false
		}
	}
	return true
}

// into copies the strings; any other message is copied as JSON.
func (c complaint) into(e *api.Error) {
	var isText bool
	if e.Message, isText = str(c.Message); !isText {
		e.Message = string(c.Message)
	}
	e.Type, _ = str(c.Type)
	e.Param, _ = str(c.Param)
	e.Code, _ = str(c.Code)
}

func str(raw json.RawMessage) (string, bool) { return text(raw, len(raw) > 0) }

// detail decodes FastAPI's detail.
func detail(raw json.RawMessage) (message, param string) {
	if s, isText := str(raw); isText {
		return s, ""
	}
	var list []struct {
		Place   []any  `json:"loc"`
		Message string `json:"msg"`
	}
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return string(raw), ""
	}
	for i, part := range list[0].Place {
		if s, isText := part.(string); isText && (i > 0 || s != "body") {
			param = s
			break
		}
	}
	return list[0].Message, param
}

func readable(status int, body []byte) string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 500)]), "\uFFFD"))
	if s == "" || strings.HasPrefix(s, "<") {
		return "the model server answers " + strings.TrimSpace(http.StatusText(status)+" and does not say why")
	}
	return s
}

// codeFor returns OpenAI's code for an error that servers only describe.
func codeFor(status int, message string) string {
	m := strings.ToLower(message)
	switch {
	case status == http.StatusNotFound && strings.Contains(m, "model"):
		return api.CodeModelNotFound
	case status == http.StatusBadRequest && (strings.Contains(m, "context length") || strings.Contains(m, "context size")):
		return "context_length_exceeded"
	case (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) &&
		(strings.Contains(m, "busy") || strings.Contains(m, "backpressure") || strings.Contains(m, "queue")):
		return api.CodeBusy
	}
	return ""
}
