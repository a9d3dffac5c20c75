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

// value is the value of a key: a string, decoded, or where another kind begins.
type value struct {
	first byte // of the JSON; 0: the key is missing
	text  []byte
	at    int
}

// object reads the object that text is: the values of keys, in their order. Of a
// repeated key the last counts, others are left out.
func object(text []byte, keys []string) (values [6]value, err error) {
	at := span.Begin(text)
	if at < len(text) && text[at] != '{' {
		if _, err := span.Skip(text, at); err != nil {
			return values, fmt.Errorf("it is no JSON: %w", err)
		}
		return values, fmt.Errorf("it is %s: want an object with the keys %s", kind(text[at]), strings.Join(keys, ", "))
	}
	end, err := span.Object(text, at, func(key []byte, at int) (end int, err error) {
		v := value{at: at}
		if span.Is(text, at, '"') {
			v.first = '"'
			v.text, end, err = span.Decode(text, at)
		} else if end, err = span.Skip(text, at); err == nil {
			v.first, v.text = text[at], text[at:end]
		}
		for i, k := range keys {
			if string(key) == k {
				values[i] = v
			}
		}
		return end, err
	})
	if err == nil {
		err = span.End(text, end)
	}
	if err != nil {
		return values, fmt.Errorf("it is no JSON: %w", err)
	}
	for i, k := range keys {
		if values[i].first == 0 {
			return values, fmt.Errorf("the key %q is missing", k)
		}
	}
	return values, nil
}

// ParseRequest reads a request. text is overwritten, and the body is a part of
// it. The error names what to change; one of the syntax is an *span.Error.
func ParseRequest(text []byte) (r Request, err error) {
	values, err := object(text, keys)
	if err != nil {
		return r, err
	}
	if r.Method, err = values[0].word("method"); err != nil {
		return r, err
	}
	if r.Path, err = values[1].word("url_path"); err != nil {
		return r, err
	}
	if r.Header, err = headers(text, values[2]); err != nil {
		return r, err
	}
	of, err := values[4].word("body_type")
	if err != nil {
		return r, err
	}
	r.Compat = values[5].first == 't' // true is the only word that begins so
	r.Body, err = body(values[3], of)
	return r, err
}

func (v value) word(key string) (string, error) {
	if v.first != '"' {
		return "", fmt.Errorf("the key %q is %s: want a string", key, kind(v.first))
	}
	switch string(v.text) { // the usual ones need no memory
	case "POST":
		return "POST", nil
	case "GET":
		return "GET", nil
	case bodyText:
		return bodyText, nil
	case bodyStream:
		return bodyStream, nil
	}
	return string(v.text), nil
}

// headers reads the object of headers. Of a repeated name the last counts.
func headers(text []byte, v value) ([]Field, error) {
	if v.first != '{' {
		return nil, fmt.Errorf("the key \"headers\" is %s: want an object of strings", kind(v.first))
	}
	var all []Field
	_, err := span.Object(text, v.at, func(key []byte, at int) (int, error) {
		if text[at] != '"' {
			return 0, fmt.Errorf("the header %q is %s: want a string", key, kind(text[at]))
		}
		name := string(key)
		value, end, err := span.Decode(text, at)
		f := Field{name, string(value)}
		if i := slices.IndexFunc(all, func(f Field) bool { return f.Name == name }); i >= 0 {
			all[i] = f
		} else {
			all = append(all, f)
		}
		return end, err
	})
	return all, err
}

// body decodes a body of a kind; one that is not known is text, as for stock servers.
func body(v value, of string) ([]byte, error) {
	switch {
	case of == bodyNone || v.first == 'n' && of == bodyText:
		return nil, nil
	case v.first != '"':
		return nil, fmt.Errorf("the key \"body\" is %s: want a string where body_type is %q", kind(v.first), of)
	case of != bodyStream:
		return v.text, nil
	}
	n, err := base64.StdEncoding.Decode(v.text, v.text) // what was read is never read again
	if err != nil {
		return nil, errors.New("the key \"body\" is not base64, as body_type \"stream\" says: want the standard alphabet with padding")
	}
	return v.text[:n], nil
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
