package envelope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/functions/pyfunc/internal/span"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// Response is an answer as it stands in an envelope.
type Response struct {
	Status int
	// Header says what Body is; what belongs to a connection is not carried.
	Header http.Header
	Body   []byte
}

// AppendResponse appends r as a JSON string, quotes included, as stock clients
// read it: names of headers in lower case, repeated ones joined, the body as
// text where its type is JSON or plain text and it is UTF-8, else in base64.
func AppendResponse(dst []byte, r Response) []byte {
	dst = append(dst, `"{\"status_code\": `...)
	dst = strconv.AppendInt(dst, int64(r.Status), 10)
	dst = append(dst, `, \"headers\": {`...)
	var room [16]string // so that the usual headers need no memory
	names := slices.AppendSeq(room[:0], maps.Keys(r.Header))
	slices.Sort(names)
	first := true
	for _, name := range names {
		if localhttp.PerConnection(name) || name == "Content-Length" || len(r.Header[name]) == 0 {
			continue
		}
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = field(dst, strings.ToLower(name), strings.Join(r.Header[name], ", "))
	}
	if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		if !first {
			dst = append(dst, ", "...)
		}
		dst = append(dst, `\"content-length\": \"`...)
		dst = strconv.AppendInt(dst, int64(len(r.Body)), 10)
		dst = append(dst, `\"`...)
	}
	dst = append(dst, `}, \"content\": \"`...)
	if contentType := r.Header.Get("Content-Type"); isText(contentType) && r.Header.Get("Content-Encoding") == "" && utf8.Valid(r.Body) {
		dst = span.EscapeTwice(dst, r.Body)
		return append(dst, `\", \"content_type\": \"text\"}"`...)
	}
	dst = base64.StdEncoding.AppendEncode(dst, r.Body)
	return append(dst, `\", \"content_type\": \"stream\"}"`...)
}

// answerKeys are those that an answer must have.
var answerKeys = []string{"status_code", "headers", "content", "content_type"}

// ParseResponse reads an answer. text is overwritten, and the body is a part of it.
func ParseResponse(text []byte) (r Response, err error) {
	values, err := object(text, answerKeys)
	if err != nil {
		return r, err
	}
	status, content := values[0], values[2]
	if r.Status, err = strconv.Atoi(string(status.text)); err != nil || status.first == '"' || r.Status < 100 || r.Status > 999 {
		return r, fmt.Errorf("the status_code is %.20q: want an HTTP status", status.text)
	}
	fields, err := headers(text, values[1])
	if err != nil {
		return r, err
	}
	r.Header = make(http.Header, len(fields))
	for _, f := range fields {
		r.Header.Add(f.Name, f.Value)
	}
	of, err := values[3].word("content_type")
	if err != nil {
		return r, err
	}
	if content.first != '"' {
		return r, fmt.Errorf("the content is %s: want a string", kind(content.first))
	}
	r.Body = content.text
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
