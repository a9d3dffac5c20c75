package pyfunc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Response is an answer in an envelope.
type Response struct {
	Status int
	// Header describes Body, without headers of the connection.
	Header http.Header
	Body   []byte
}

// AppendResponse appends r as a JSON string, quotes included, as stock clients read it. Names of headers are in lower
// case and repeated ones are joined. The body is text if its type is JSON or plain text and it is UTF-8, else base64.
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

// Fields returns headers as in an envelope, sorted: names in lower case, repeated ones joined.
// It leaves out headers of the connection, and those for which drop returns true.
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

// responseKeys are required.
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
