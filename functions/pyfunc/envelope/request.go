package envelope

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-dev/rouse/internal/jsonfield"
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

// value is the value of a key, as JSON; nil: the key is missing.
type value []byte

// object reads the object that text is: the values of keys, in their order. Of a
// repeated key the last counts, others are left out.
func object(text []byte, keys []string) (values [6]value, err error) {
	err = jsonfield.Each(text, 0, func(name, v []byte) bool {
		if i := slices.Index(keys, string(jsonfield.Text(name))); i >= 0 {
			values[i] = v
		}
		return true
	})
	if err != nil {
		text = bytes.Trim(text, " \t\r\n")
		if len(text) > 0 && text[0] != '{' && jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			return values, fmt.Errorf("it is %s: want an object with the keys %s", value(text).kind(), strings.Join(keys, ", "))
		}
		return values, fmt.Errorf("it is no JSON: %w", err)
	}
	for i, k := range keys {
		if values[i] == nil {
			return values, fmt.Errorf("the key %q is missing", k)
		}
	}
	return values, nil
}

// ParseRequest reads a request. text may be overwritten, and the body may be a
// part of it. The error names what to change.
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
	if r.Header, err = requestHeaders(values[2]); err != nil {
		return r, err
	}
	of := "" // null is as any other kind that is not known
	if values[4][0] != 'n' {
		if of, err = values[4].word("body_type"); err != nil {
			return r, err
		}
	}
	r.Compat = string(values[5]) == "true"
	r.Body, err = body(values[3], of)
	return r, err
}

func (v value) word(key string) (string, error) {
	if v[0] != '"' {
		return "", fmt.Errorf("the key %q is %s: want a string", key, v.kind())
	}
	return string(jsonfield.Text(v)), nil
}

// requestHeaders reads what a request may have for headers: an object, a list of names with their values, or null.
func requestHeaders(v value) (all []Field, err error) {
	switch v[0] {
	case 'n':
		return nil, nil
	case '[':
		_ = jsonfield.Items(v, func(pair []byte) bool { // it is JSON
			var words []string
			if pair[0] != '[' {
				err = fmt.Errorf("the key \"headers\" has %s in its list: want lists of a name and its value", value(pair).kind())
				return false
			}
			_ = jsonfield.Items(pair, func(word []byte) bool {
				if word[0] == '"' {
					words = append(words, string(jsonfield.Text(word)))
				}
				return true
			})
			if len(words) != 2 {
				err = errors.New("the key \"headers\" has a list that is no name and value: want two strings")
				return false
			}
			all = append(all, Field{words[0], words[1]})
			return true
		})
		return all, err
	}
	return headers(v)
}

// headers reads the object of headers. Of a repeated name the last counts.
func headers(v value) (all []Field, err error) {
	if v[0] != '{' {
		return nil, fmt.Errorf("the key \"headers\" is %s: want an object of strings", v.kind())
	}
	_ = jsonfield.Each(v, 0, func(quoted, v []byte) bool { // it is JSON
		name := string(jsonfield.Text(quoted))
		if v[0] != '"' {
			err = fmt.Errorf("the header %q is %s: want a string", name, value(v).kind())
			return false
		}
		f := Field{name, string(jsonfield.Text(v))}
		if i := slices.IndexFunc(all, func(f Field) bool { return f.Name == name }); i >= 0 {
			all[i] = f
		} else {
			all = append(all, f)
		}
		return true
	})
	return all, err
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

// body decodes a body of a kind; one that is not known is text, as for stock servers.
func body(v value, of string) ([]byte, error) {
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
	text = slices.DeleteFunc(text, func(c byte) bool { return !strings.ContainsRune(alphabet, rune(c)) }) // as Python does
	n, err := base64.StdEncoding.Decode(text, text)                                                       // what was read is never read again
	if err != nil {
		return nil, errors.New("the key \"body\" is not base64, as body_type \"stream\" says: want the standard alphabet with padding")
	}
	return text[:n], nil
}

// kind names the kind of a value.
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

// AppendRequest appends r as a JSON string, quotes included, of which the stock
// server makes r again. How the body is carried follows from its type and bytes:
// as text where it is JSON, plain text or a form in UTF-8, else in base64.
func AppendRequest(dst []byte, r Request) []byte {
	in := scratch.Get().(*document)
	defer in.release()
	in.text = appendField(append(in.text, '{'), "method", r.Method)
	in.text = appendField(append(in.text, ", "...), "url_path", r.Path)
	in.text = append(in.text, `, "headers": {`...)
	contentType := ""
	for i, f := range r.Header {
		if i > 0 {
			in.text = append(in.text, ", "...)
		}
		in.text = appendField(in.text, f.Name, f.Value)
		if http.CanonicalHeaderKey(f.Name) == "Content-Type" {
			contentType = f.Value
		}
	}
	in.text = append(in.text, `}, "body": `...)
	of := bodyOf(contentType, r.Body)
	if of == bodyNone {
		in.text = append(in.text, "null"...)
	} else {
		in.body(r.Body, of == bodyStream)
	}
	in.text = appendField(append(in.text, ", "...), "body_type", of)
	in.text = append(in.text, `, "requires_openai_compat": `...)
	in.text = append(strconv.AppendBool(in.text, r.Compat), '}')
	return appendQuoted(dst, in.text)
}

// document is an object that is to become a string in a string.
type document struct{ text []byte }

var scratch = sync.Pool{New: func() any { return new(document) }}

// maxScratch is how much memory is kept for the next document.
const maxScratch = 1 << 20

func (d *document) release() {
	if cap(d.text) <= maxScratch {
		d.text = d.text[:0]
		scratch.Put(d)
	}
}

// body appends a body, in base64 or as it is.
func (d *document) body(body []byte, encode bool) {
	if !encode {
		d.text = appendQuoted(d.text, body)
		return
	}
	d.text = base64.StdEncoding.AppendEncode(append(d.text, '"'), body)
	d.text = append(d.text, '"')
}

// appendQuoted appends what is UTF-8 as a string, quotes included.
func appendQuoted[T []byte | string](dst []byte, s T) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the only error is about UTF-8
	return dst
}

// appendField appends a member that is a string.
func appendField(dst []byte, name, value string) []byte {
	dst = append(appendQuoted(dst, clean(name)), ": "...)
	return appendQuoted(dst, clean(value))
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
