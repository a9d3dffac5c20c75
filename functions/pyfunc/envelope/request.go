package envelope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/functions/pyfunc/internal/span"
)

// Request is a request as it stands in an envelope.
type Request struct {
	Method string
	// Path is the key url_path as it was sent; a query may follow it.
	Path string
	// Header has the names as they were sent, one value each.
	Header []Field
	// Body is decoded.
	Body []byte
	// Compat is requires_openai_compat: Path is below /v1/.
	Compat bool
}

// Field is one header.
type Field struct{ Name, Value string }

// Kinds of body.
const (
	bodyText      = "text"
	bodyStream    = "stream"
	bodyMultipart = "multipart"
	bodyNone      = "none"
)

// keys are those that a request must have.
var keys = []string{"method", "url_path", "headers", "body", "body_type", "requires_openai_compat"}

// ParseRequest reads a request. text is overwritten, and the body is a part of
// it. The error names what to change; one of the syntax is an *span.Error.
func ParseRequest(text []byte) (Request, error) {
	from, to, err := span.Document(text)
	if err != nil {
		return Request{}, fmt.Errorf("it is no JSON: %w", err)
	}
	if text[from] != '{' {
		return Request{}, fmt.Errorf("it is %s: want an object with the keys %s", kind(text[from]), strings.Join(keys, ", "))
	}
	values := map[string][]byte{}
	_, err = span.Object(text[:to], from, func(key []byte, from, to int) error {
		values[string(key)] = text[from:to]
		return nil
	})
	if err != nil {
		return Request{}, err
	}
	for _, k := range keys {
		if _, found := values[k]; !found {
			return Request{}, fmt.Errorf("the key %q is missing", k)
		}
	}
	return assemble(values)
}

// assemble reads the values of the known keys.
func assemble(values map[string][]byte) (r Request, err error) {
	if r.Method, err = word("method", values); err != nil {
		return r, err
	}
	if r.Path, err = word("url_path", values); err != nil {
		return r, err
	}
	kind, err := word("body_type", values)
	if err != nil {
		return r, err
	}
	if r.Header, err = headers(values["headers"]); err != nil {
		return r, err
	}
	r.Compat = string(values["requires_openai_compat"]) == "true"
	r.Body, err = body(values["body"], kind)
	return r, err
}

func word(key string, values map[string][]byte) (string, error) {
	v := values[key]
	if v[0] != '"' {
		return "", fmt.Errorf("the key %q is %s: want a string", key, kind(v[0]))
	}
	return string(span.Text(v)), nil
}

// headers reads the object of headers. Of a repeated name the last counts.
func headers(raw []byte) ([]Field, error) {
	if raw[0] != '{' {
		return nil, fmt.Errorf("the key \"headers\" is %s: want an object of strings", kind(raw[0]))
	}
	var all []Field
	_, err := span.Object(raw, 0, func(key []byte, from, to int) error {
		if raw[from] != '"' {
			return fmt.Errorf("the header %q is %s: want a string", key, kind(raw[from]))
		}
		name := string(key)
		f := Field{name, string(span.Text(raw[from:to]))}
		if at := slices.IndexFunc(all, func(f Field) bool { return f.Name == name }); at >= 0 {
			all[at] = f
			return nil
		}
		all = append(all, f)
		return nil
	})
	return all, err
}

// body decodes a body of a kind; one that is not known is text, as for stock servers.
func body(raw []byte, of string) ([]byte, error) {
	if of == bodyNone {
		return nil, nil
	}
	switch raw[0] {
	case '"':
	case 'n':
		if of == bodyText {
			return nil, nil
		}
		fallthrough
	default:
		return nil, fmt.Errorf("the key \"body\" is %s: want a string where body_type is %q", kind(raw[0]), of)
	}
	text := span.Text(raw)
	if of != bodyStream {
		return text, nil
	}
	n, err := base64.StdEncoding.Decode(text, text) // what was read is never read again
	if err != nil {
		return nil, errors.New("the key \"body\" is not base64, as body_type \"stream\" says: want the standard alphabet with padding")
	}
	return text[:n], nil
}

// kind names a value by its first byte.
func kind(first byte) string {
	switch first {
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

// AppendRequest appends r as a JSON string, quotes included, of which the stock
// server makes r again. How the body is carried follows from its type and bytes:
// as text where it is JSON, plain text or a form in UTF-8, else in base64.
func AppendRequest(dst []byte, r Request) []byte {
	dst = append(dst, `"{\"method\": \"`...)
	dst = span.EscapeTwice(dst, clean(r.Method))
	dst = append(dst, `\", \"url_path\": \"`...)
	dst = span.EscapeTwice(dst, clean(r.Path))
	dst = append(dst, `\", \"headers\": {`...)
	contentType := ""
	for i, f := range r.Header {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = field(dst, f.Name, f.Value)
		if http.CanonicalHeaderKey(f.Name) == "Content-Type" {
			contentType = f.Value
		}
	}
	of := bodyOf(contentType, r.Body)
	dst = append(dst, `}, \"body\": `...)
	switch of {
	case bodyNone:
		dst = append(dst, "null"...)
	case bodyStream:
		dst = append(dst, `\"`...)
		dst = base64.StdEncoding.AppendEncode(dst, r.Body)
		dst = append(dst, `\"`...)
	default:
		dst = append(dst, `\"`...)
		dst = span.EscapeTwice(dst, r.Body)
		dst = append(dst, `\"`...)
	}
	dst = append(dst, `, \"body_type\": \"`...)
	dst = append(dst, of...)
	dst = append(dst, `\", \"requires_openai_compat\": `...)
	if r.Compat {
		return append(dst, `true}"`...)
	}
	return append(dst, `false}"`...)
}

func bodyOf(contentType string, body []byte) string {
	switch {
	case body == nil:
		return bodyNone
	case !utf8.Valid(body):
		return bodyStream
	case strings.HasPrefix(contentType, "multipart/form-data"):
		return bodyMultipart
	case isText(contentType):
		return bodyText
	}
	return bodyStream
}

// isText says whether stock clients and servers carry a type as text.
func isText(contentType string) bool {
	return strings.HasPrefix(contentType, "application/json") || strings.HasPrefix(contentType, "text/plain")
}

// field appends one header.
func field(dst []byte, name, value string) []byte {
	dst = append(dst, `\"`...)
	dst = span.EscapeTwice(dst, clean(name))
	dst = append(dst, `\": \"`...)
	dst = span.EscapeTwice(dst, clean(value))
	return append(dst, `\"`...)
}

// clean makes UTF-8 of a header's bytes: what is none is read as Latin-1, as RFC 9110 suggests.
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
