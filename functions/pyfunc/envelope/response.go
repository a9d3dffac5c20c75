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
)

// Response is an answer as it stands in an envelope.
type Response struct {
	Status int
	// Header says what Body is; what belongs to a connection is not carried.
	Header http.Header
	Body   []byte
}

// dropped are headers that belong to one connection, and the one that is corrected.
var dropped = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
}

// AppendResponse appends r as a JSON string, quotes included, as stock clients
// read it: names of headers in lower case, repeated ones joined, the body as
// text where its type is JSON or plain text and it is UTF-8, else in base64.
func AppendResponse(dst []byte, r Response) []byte {
	dst = append(dst, `"{\"status_code\": `...)
	dst = strconv.AppendInt(dst, int64(r.Status), 10)
	dst = append(dst, `, \"headers\": {`...)
	names := slices.Sorted(maps.Keys(r.Header))
	first := true
	for _, name := range names {
		if dropped[name] || len(r.Header[name]) == 0 {
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

// ParseResponse reads an answer. text is overwritten, and the body is a part of it.
func ParseResponse(text []byte) (Response, error) {
	from, to, err := span.Document(text)
	if err != nil {
		return Response{}, fmt.Errorf("it is no JSON: %w", err)
	}
	if text[from] != '{' {
		return Response{}, fmt.Errorf("it is %s: want an object with status_code, headers, content and content_type", kind(text[from]))
	}
	values := map[string][]byte{}
	_, err = span.Object(text[:to], from, func(key []byte, from, to int) error {
		values[string(key)] = text[from:to]
		return nil
	})
	if err != nil {
		return Response{}, err
	}
	for _, k := range []string{"status_code", "headers", "content", "content_type"} {
		if _, found := values[k]; !found {
			return Response{}, fmt.Errorf("the key %q is missing", k)
		}
	}
	return answer(values)
}

func answer(values map[string][]byte) (r Response, err error) {
	if r.Status, err = strconv.Atoi(string(values["status_code"])); err != nil || r.Status < 100 || r.Status > 999 {
		return r, fmt.Errorf("the status_code is %.20s: want an HTTP status", values["status_code"])
	}
	fields, err := headers(values["headers"])
	if err != nil {
		return r, err
	}
	r.Header = make(http.Header, len(fields))
	for _, f := range fields {
		r.Header.Add(f.Name, f.Value)
	}
	of, err := word("content_type", values)
	if err != nil {
		return r, err
	}
	if values["content"][0] != '"' {
		return r, fmt.Errorf("the content is %s: want a string", kind(values["content"][0]))
	}
	r.Body = span.Text(values["content"])
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
