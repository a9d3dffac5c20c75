package pyfunc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// unquote decodes the result of an append function: a string in a string.
func unquote(t testing.TB, quoted []byte) []byte {
	t.Helper()
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		t.Fatalf("%s: %v", quoted, err)
	}
	return []byte(s)
}

func TestRequest(t *testing.T) {
	for name, r := range map[string]pyfunc.Request{
		"json": {Method: "POST", Path: "/chat/completions?a=b", Header: []pyfunc.Field{{"content-type", "application/json"}, {"x", "ä\""}}, Body: []byte("{\"a\": \"b\\n\"}\r\n"), Compat: true},
		"none": {Method: "GET", Path: "/models"},
		"form": {Method: "POST", Path: "/x", Header: []pyfunc.Field{{"Content-Type", "multipart/form-data; boundary=b"}}, Body: []byte("--b\r\n")},
		"wav":  {Method: "POST", Path: "/x", Header: []pyfunc.Field{{"content-type", "audio/wav"}}, Body: []byte("\x00\xff")},
		"form with bytes": {
			Method: "POST", Path: "/x", Header: []pyfunc.Field{{"content-type", "multipart/form-data; boundary=b"}}, Body: []byte("--b\r\n\xff"),
		},
	} {
		got, err := pyfunc.ParseRequest(unquote(t, pyfunc.AppendRequest(nil, r)))
		if diff := cmp.Diff(r, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestResponse(t *testing.T) {
	quoted := pyfunc.AppendResponse(nil, pyfunc.Response{
		Status: 200, Body: []byte("{\"a\": \"\\n\"}\n"),
		Header: http.Header{"Content-Type": {"application/json"}, "Set-Cookie": {"a", "b"}, "Transfer-Encoding": {"chunked"}, "Content-Length": {"7"}, "X-Latin": {"\xe4"}},
	})
	const want = `{"status_code": 200, "headers": {"content-type": "application/json", "set-cookie": "a, b", "x-latin": "ä", "content-length": "12"}, "content": "{\"a\": \"\\n\"}\n", "content_type": "text"}`
	if got := string(unquote(t, quoted)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := pyfunc.ParseResponse(unquote(t, quoted))
	if err != nil || got.Status != 200 || string(got.Body) != "{\"a\": \"\\n\"}\n" || got.Header.Get("Set-Cookie") != "a, b" {
		t.Errorf("%v %+v", err, got)
	}
	for contentType, tag := range map[string]string{
		"application/json; charset=utf-8": "text", "text/plain": "text", "text/event-stream": "stream", "": "stream", "audio/wav": "stream", "application/jsonl": "text",
	} {
		quoted := pyfunc.AppendResponse(nil, pyfunc.Response{Status: 500, Header: http.Header{"Content-Type": {contentType}}, Body: []byte("é")})
		if text := string(unquote(t, quoted)); !strings.HasSuffix(text, `"content_type": "`+tag+`"}`) {
			t.Errorf("%q: %s, want %s", contentType, text, tag)
		}
	}
	quoted = pyfunc.AppendResponse(nil, pyfunc.Response{Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("\xff")})
	if got, err := pyfunc.ParseResponse(unquote(t, quoted)); err != nil || string(got.Body) != "\xff" {
		t.Errorf("bytes labelled as text: %q, %v", got.Body, err)
	}
}

func TestBadResponse(t *testing.T) {
	for text, want := range map[string]string{
		`x`: "no JSON", `[]`: "an array", `{}`: `"status_code" is missing`,
		`{"status_code": "200", "headers": {}, "content": "", "content_type": "text"}`:    "want an HTTP status",
		`{"status_code": 20, "headers": {}, "content": "", "content_type": "text"}`:       "want an HTTP status",
		`{"status_code": 200, "headers": [], "content": "", "content_type": "text"}`:      "want an object of strings",
		`{"status_code": 200, "headers": {}, "content": null, "content_type": "text"}`:    "want a string",
		`{"status_code": 200, "headers": {}, "content": "", "content_type": 1}`:           "want a string",
		`{"status_code": 200, "headers": {}, "content": "a", "content_type": "stream"}`:   "not base64",
		`{"status_code": 200, "headers": {"a":1}, "content": "", "content_type": "text"}`: "want a string",
	} {
		if _, err := pyfunc.ParseResponse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// slow is the obvious reader of a request.
type slow struct {
	Method   *string            `json:"method"`
	Path     *string            `json:"url_path"`
	Header   *map[string]string `json:"headers"`
	Body     json.RawMessage    `json:"body"`
	BodyType *string            `json:"body_type"`
	Compat   json.RawMessage    `json:"requires_openai_compat"`
}

// FuzzRequest checks that a request is read as encoding/json reads it, and is the same after
// it was written and read again.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"method": "POST", "url_path": "/chat/completions", "headers": {"content-type": "application/json"}, "body": "{\"a\": \"\\n\"}", "body_type": "text", "requires_openai_compat": true}`,
		`{"method": "GET", "url_path": "/models", "headers": {}, "body": null, "body_type": "none", "requires_openai_compat": false}`,
		`{"method": "POST", "url_path": "/x", "headers": {"a": "b", "a": "c"}, "body": "AGE=", "body_type": "stream", "requires_openai_compat": 1}`,
		`{"method": "P\u00d6ST", "url_path": "", "headers": {}, "body": "\ud83d\ude00", "body_type": "multipart", "requires_openai_compat": null, "method": "x"}`,
		`{}`, `[]`, ``, `{"method": 1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			return // the whole call was checked before
		}
		var twin slow
		plain := json.Unmarshal(text, &twin) == nil && twin.Method != nil && twin.Path != nil && twin.Header != nil && twin.BodyType != nil
		original := bytes.Clone(text)
		r, err := pyfunc.ParseRequest(text)
		if err != nil {
			return
		}
		// encoding/json accepts keys in any case, and null for anything. If it accepts the same text, the values are
		// equal.
		if plain && strict(original) {
			if r.Method != *twin.Method || r.Path != *twin.Path || r.Compat != (string(twin.Compat) == "true") || len(r.Header) != len(*twin.Header) {
				t.Fatalf("%s is read as %+v", original, r)
			}
			var body string
			if json.Unmarshal(twin.Body, &body) == nil && *twin.BodyType == "text" && body != string(r.Body) {
				t.Fatalf("%s: the body is %q", original, r.Body)
			}
			if raw, err := base64.StdEncoding.DecodeString(body); *twin.BodyType == "stream" && (err != nil || !bytes.Equal(raw, r.Body)) {
				t.Fatalf("%s: the body is %q, %v", original, r.Body, err)
			}
		}
		again, err := pyfunc.ParseRequest(unquote(t, pyfunc.AppendRequest(nil, r)))
		if len(r.Body) == 0 {
			r.Body, again.Body = nil, nil
		}
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v comes back as %+v, %v", r, again, err)
		}
	})
}

// strict reports whether each key has its exact spelling and occurs once.
func strict(text []byte) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(text, &keys) != nil || len(keys) != 6 {
		return false
	}
	lower := strings.ToLower(string(text))
	for _, k := range []string{"method", "url_path", "headers", "body", "body_type", "requires_openai_compat"} {
		if _, found := keys[k]; !found || strings.Count(lower, `"`+k+`"`) != 1 {
			return false
		}
	}
	var header map[string]*string
	if json.Unmarshal(keys["headers"], &header) != nil {
		return false
	}
	for _, v := range header {
		if v == nil {
			return false
		}
	}
	return !strings.Contains(string(text), `\u`)
}

// FuzzResponse checks that no answer makes the client panic, and that an answer is the same after it was read and
// written.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"status_code": 200, "headers": {"content-type": "application/json"}, "content": "{}", "content_type": "text"}`))
	f.Add([]byte(`{"status_code": 503, "headers": {}, "content": "AA==", "content_type": "stream"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			return
		}
		r, err := pyfunc.ParseResponse(text)
		if err != nil {
			return
		}
		again, err := pyfunc.ParseResponse(unquote(t, pyfunc.AppendResponse(nil, r)))
		if err != nil || again.Status != r.Status || !bytes.Equal(again.Body, r.Body) {
			t.Fatalf("%+v comes back as %+v, %v", r, again, err)
		}
	})
}
