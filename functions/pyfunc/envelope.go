package pyfunc

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Request is a request in an envelope, the wire format by which mlflow-extensions carries HTTP through MLflow's scoring server:
//
//	request:  {"inputs": ["{\"method\": \"POST\", \"url_path\": \"/chat/completions\", …}"]}
//	answer:   {"predictions": ["{\"status_code\": 200, \"headers\": {…}, \"content\": \"…\", \"content_type\": \"text\"}"]}
type Request struct {
	Method string
	// Path is url_path as sent; a query may follow it.
	Path string
	// Header has the names as sent, one value each.
	Header []Field
	Body   []byte
	// Compat is requires_openai_compat: Path is below /v1/.
	Compat bool
}

// Field is one header.
type Field struct{ Name, Value string }

const (
	bodyText      = "text"
	bodyStream    = "stream"
	bodyMultipart = "multipart"
	bodyNone      = "none"
)

var requestKeys = []string{"method", "url_path", "headers", "body", "body_type", "requires_openai_compat"}

// value is a JSON value without white space around it.
type value []byte

// object is a JSON object. It keeps its first error.
type object struct {
	values map[string]value
	err    error
}

// parseObject ignores other keys. Of a repeated key the last one counts.
func parseObject(text []byte, keys []string) *object {
	o := &object{values: map[string]value{}}
	err := jsonfield.Each(text, func(name, v []byte) bool {
		if key := string(jsonfield.Text(name)); slices.Contains(keys, key) {
			o.values[key] = v
		}
		return true
	})
	text = bytes.Trim(text, " \t\r\n")
	switch {
	case err != nil && len(text) > 0 && text[0] != '{' && jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)):
		o.refuse("it is %s: want an object with the keys %s", value(text).kind(), strings.Join(keys, ", "))
	case err != nil:
		o.refuse("it is no JSON: %w", err)
	}
	for _, k := range keys {
		if o.values[k] == nil {
			o.refuse("the key %q is missing", k)
			o.values[k] = value("null")
		}
	}
	return o
}

func (o *object) refuse(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

func (o *object) word(key string) string {
	v := o.values[key]
	if v[0] != '"' {
		o.refuse("the key %q is %s: want a string", key, v.kind())
		return ""
	}
	return string(jsonfield.Text(v))
}

// ParseRequest reads a request. It may overwrite text, and the body may be a part of it.
func ParseRequest(text []byte) (Request, error) {
	o := parseObject(text, requestKeys)
	r := Request{Method: o.word("method"), Path: o.word("url_path"), Header: o.pairs(), Compat: string(o.values["requires_openai_compat"]) == "true"}
	of := ""
	if o.values["body_type"][0] != 'n' {
		of = o.word("body_type")
	}
	if o.err == nil { // decoding overwrites text
		r.Body, o.err = decodeBody(o.values["body"], of)
	}
	return r, o.err
}

func (o *object) pairs() (all []Field) {
	switch v := o.values["headers"]; v[0] {
	case 'n':
		return nil
	case '[':
		var pairs [][]*string
		if json.Unmarshal(v, &pairs) != nil || slices.ContainsFunc(pairs, func(p []*string) bool { return len(p) != 2 || p[0] == nil || p[1] == nil }) {
			o.refuse(`the key "headers" has a list that is no list of names and values: want lists of two strings`)
			return nil
		}
		for _, p := range pairs {
			all = append(all, Field{*p[0], *p[1]})
		}
		return all
	}
	return o.headers()
}

// Of a repeated name headers takes the last.
func (o *object) headers() (all []Field) {
	v := o.values["headers"]
	if v[0] != '{' {
		o.refuse("the key \"headers\" is %s: want an object of strings", v.kind())
		return nil
	}
	_ = jsonfield.Each(v, func(quoted, v []byte) bool {
		name := string(jsonfield.Text(quoted))
		if v[0] != '"' {
			o.refuse("the header %q is %s: want a string", name, value(v).kind())
			return false
		}
		all = slices.DeleteFunc(all, func(f Field) bool { return f.Name == name })
		all = append(all, Field{name, string(jsonfield.Text(v))})
		return true
	})
	return all
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

// decodeBody takes an unknown kind as text, as stock servers do.
func decodeBody(v value, of string) ([]byte, error) {
	switch {
	case of == bodyNone || v[0] == 'n' && of != bodyStream && of != bodyMultipart:
		return nil, nil
	case v[0] != '"':
		return nil, fmt.Errorf("the key \"body\" is %s: want a string where body_type is %q", v.kind(), of)
	}
	text := jsonfield.Text(v)
	if of != bodyStream {
		return text, nil
	}
	text = slices.DeleteFunc(text, func(c byte) bool { return strings.IndexByte(alphabet, c) < 0 }) // as Python does
	n, err := base64.StdEncoding.Decode(text, text)                                                 // text is not read again
	if err != nil {
		return nil, errors.New("the key \"body\" is not base64, as body_type \"stream\" says: want the standard alphabet with padding")
	}
	return text[:n], nil
}

func (v value) kind() string {
	switch v[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

// AppendRequest appends r as a JSON string, quotes included. The body is text if its type and bytes are JSON, plain text or a form in
// UTF-8, else base64.
func AppendRequest(dst []byte, r Request) []byte {
	contentType := ""
	for _, f := range r.Header {
		if http.CanonicalHeaderKey(f.Name) == "Content-Type" {
			contentType = f.Value
		}
	}
	of := bodyStream
	switch {
	case r.Body == nil:
		of = bodyNone
	case !utf8.Valid(r.Body):
	case strings.HasPrefix(contentType, "multipart/form-data"):
		of = bodyMultipart
	case isText(contentType):
		of = bodyText
	}
	text := appendQuoted([]byte(`{"method": `), clean(r.Method))
	text = appendQuoted(append(text, `, "url_path": `...), clean(r.Path))
	text = appendFields(append(text, `, "headers": `...), r.Header)
	text = appendBody(append(text, `, "body": `...), r.Body, of)
	return appendQuoted(dst, fmt.Appendf(text, `, "body_type": %q, "requires_openai_compat": %t}`, of, r.Compat))
}

func appendFields(dst []byte, fields []Field) []byte {
	dst = append(dst, '{')
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(appendQuoted(dst, clean(f.Name)), ": "...)
		dst = appendQuoted(dst, clean(f.Value))
	}
	return append(dst, '}')
}

func appendBody(dst, body []byte, of string) []byte {
	switch of {
	case bodyNone:
		return append(dst, "null"...)
	case bodyStream:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), body), '"')
	}
	return appendQuoted(dst, body)
}

// s is valid UTF-8.
func appendQuoted[T []byte | string](dst []byte, s T) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

func isText(contentType string) bool {
	return strings.HasPrefix(contentType, "application/json") || strings.HasPrefix(contentType, "text/plain")
}

// clean returns a header as UTF-8: other bytes are read as Latin-1, as RFC 9110 suggests.
func clean(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// Response is an answer in an envelope.
type Response struct {
	Status int
	// Header describes Body, without headers of the connection.
	Header http.Header
	Body   []byte
}

// AppendResponse appends r as a JSON string, quotes included. The body is text if its type is JSON or plain text and it is UTF-8, else
// base64.
func AppendResponse(dst []byte, r Response) []byte {
	fields := Fields(r.Header, func(name string) bool { return name == "Content-Length" })
	if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		fields = append(fields, Field{"content-length", strconv.Itoa(len(r.Body))})
	}
	of := bodyStream
	if isText(r.Header.Get("Content-Type")) && r.Header.Get("Content-Encoding") == "" && utf8.Valid(r.Body) {
		of = bodyText
	}
	text := fmt.Appendf(make([]byte, 0, len(r.Body)+512), `{"status_code": %d, "headers": `, r.Status)
	text = append(appendFields(text, fields), `, "content": `...)
	return appendQuoted(dst, fmt.Appendf(appendBody(text, r.Body, of), `, "content_type": %q}`, of))
}

// Fields returns headers as in an envelope, sorted: names in lower case, repeated ones joined, without headers of the connection and
// those that drop selects.
func Fields(h http.Header, drop func(name string) bool) []Field {
	fields := make([]Field, 0, len(h)+1)
	for name, values := range h {
		if canonical := http.CanonicalHeaderKey(name); len(values) > 0 && !localhttp.PerConnection(canonical) && !drop(canonical) {
			fields = append(fields, Field{strings.ToLower(name), strings.Join(values, ", ")})
		}
	}
	slices.SortFunc(fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

var responseKeys = []string{"status_code", "headers", "content", "content_type"}

// ParseResponse reads an answer. It may overwrite text, and the body may be a part of it.
func ParseResponse(text []byte) (r Response, err error) {
	o := parseObject(text, responseKeys)
	status, content := o.values["status_code"], o.values["content"]
	if r.Status, err = strconv.Atoi(string(status)); err != nil || r.Status < 100 || r.Status > 999 {
		o.refuse("the status_code is %.20s: want an HTTP status", status)
	}
	r.Header = http.Header{}
	for _, f := range o.headers() {
		r.Header.Add(f.Name, f.Value)
	}
	of := o.word("content_type")
	if content[0] != '"' {
		o.refuse("the content is %s: want a string", content.kind())
	}
	if o.err != nil {
		return r, o.err
	}
	r.Body = jsonfield.Text(content)
	if of != bodyStream {
		return r, nil
	}
	n, err := base64.StdEncoding.Decode(r.Body, r.Body)
	if err != nil {
		return r, errors.New("the content is not base64, as content_type \"stream\" says")
	}
	r.Body = r.Body[:n]
	return r, nil
}

type failure struct {
	// Status of the answer; 0: 400.
	Status  int             `json:"-"`
	Code    string          `json:"error_code"` // MLflow's name; empty: it follows from Status
	Message string          `json:"message"`
	Trace   string          `json:"stack_trace,omitempty"` // the cause, where clients expect a Python server's trace
	OpenAI  json.RawMessage `json:"error,omitempty"`
}

func (f failure) Error() string { return f.Message }

func asFailure(err error) failure {
	if f, ok := errors.AsType[failure](err); ok {
		return f
	}
	e := api.AsError(err)
	return failure{Status: e.Status, Message: e.Message}
}

func invalid(message string) failure { return failure{Message: "Invalid input. " + message} }

func unexpected(cause string) failure {
	return failure{
		Message: "Encountered an unexpected error while evaluating the model. Verify that the serialized input Dataframe" +
			" is compatible with the model for inference. Error: " + cause,
		Trace: cause,
	}
}

// fail writes a failure. Nothing may have been written before.
func fail(w http.ResponseWriter, f failure) {
	f.Status = cmp.Or(f.Status, http.StatusBadRequest)
	f.Code = cmp.Or(f.Code, api.MLflowCode(f.Status))
	var body strings.Builder
	out := json.NewEncoder(&body)
	out.SetEscapeHTML(false) // as Python does
	_ = out.Encode(f)
	answer(w, f.Status, "application/json", strings.TrimSuffix(body.String(), "\n"))
}
