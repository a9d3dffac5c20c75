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

	"github.com/rouse-dev/rouse/internal/jsonfield"
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
	in := scratch.Get().(*document)
	defer in.release()
	in.text = strconv.AppendInt(append(in.text, `{"status_code": `...), int64(r.Status), 10)
	in.text = append(in.text, `, "headers": {`...)
	var room [16]string // so that the usual headers need no memory
	names := slices.AppendSeq(room[:0], maps.Keys(r.Header))
	slices.Sort(names)
	between := ""
	for _, name := range names {
		if localhttp.PerConnection(name) || name == "Content-Length" || len(r.Header[name]) == 0 {
			continue
		}
		in.text = appendField(append(in.text, between...), strings.ToLower(name), strings.Join(r.Header[name], ", "))
		between = ", "
	}
	if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		in.text = append(append(in.text, between...), `"content-length": "`...)
		in.text = append(strconv.AppendInt(in.text, int64(len(r.Body)), 10), '"')
	}
	contentType := r.Header.Get("Content-Type")
	of := bodyStream
	if isText(contentType) && r.Header.Get("Content-Encoding") == "" && utf8.Valid(r.Body) {
		of = bodyText
	}
	in.text = append(in.text, `}, "content": `...)
	in.body(r.Body, of == bodyStream)
	in.text = append(appendField(append(in.text, ", "...), "content_type", of), '}')
	return appendQuoted(dst, in.text)
}

// answerKeys are those that an answer must have.
var answerKeys = []string{"status_code", "headers", "content", "content_type"}

// ParseResponse reads an answer. text may be overwritten, and the body may be a part of it.
func ParseResponse(text []byte) (r Response, err error) {
	values, err := object(text, answerKeys)
	if err != nil {
		return r, err
	}
	status, content := values[0], values[2]
	if r.Status, err = strconv.Atoi(string(status)); err != nil || r.Status < 100 || r.Status > 999 {
		return r, fmt.Errorf("the status_code is %.20s: want an HTTP status", status)
	}
	fields, err := headers(values[1])
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
	if content[0] != '"' {
		return r, fmt.Errorf("the content is %s: want a string", content.kind())
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
