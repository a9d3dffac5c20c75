package pyfunc_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// seed adds the bodies of the corpus.
func seed(f *testing.F, add func(contentType, body string)) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no corpus")
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, p := range archive.Files {
			if strings.HasSuffix(p.Name, "/call") {
				head, body, _ := strings.Cut(content(p.Data), "\n\n")
				_, contentType, _ := strings.Cut(head, "Content-Type: ")
				contentType, _, _ = strings.Cut(contentType, "\n")
				add(contentType, body)
			}
		}
	}
}

// FuzzInvocations checks for any body that the answer has the scoring server's
// shape, and as many predictions as inputs. A request to the runtime has a
// path that leads nowhere else.
func FuzzInvocations(f *testing.F) {
	seed(f, func(contentType, body string) { f.Add(contentType, []byte(body)) })
	f.Add("application/json", []byte(`{"messages": [], "model": "", "stream": true}`))
	f.Add("application/json", []byte(`{"input": [], "model": "a", "model": null}`))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
			checkInner(t, r)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ok": true}`)
		}, func(c *pyfunc.Config) { c.Parallel = 1 })
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/invocations", bytes.NewReader(body))
		r.Header["Content-Type"] = []string{contentType}
		h.ServeHTTP(w, r)
		checkAnswer(t, w, body)
	})
}

func checkInner(t *testing.T, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil || int64(len(raw)) != r.ContentLength {
		t.Errorf("a body of %d bytes and length %d, %v", len(raw), r.ContentLength, err)
	}
	path := r.URL.Path
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.Contains(path+"/", "/../") || strings.ContainsAny(path, "\\\r\n\x00") || r.URL.Host != "" {
		t.Errorf("the path %q", path)
	}
	out, err := http.NewRequest(r.Method, "http://runtime"+r.URL.RequestURI(), nil) // as a transport does
	if err != nil || out.URL.Path != path && out.URL.Opaque == "" {
		t.Errorf("%s %q can't be sent, or is read as another: %v", r.Method, r.URL.RequestURI(), err)
	}
	for name, values := range r.Header {
		for _, v := range append(values, name) {
			if strings.ContainsAny(v, "\r\n\x00") && name != "Content-Type" {
				t.Errorf("the header %q: %q", name, v)
			}
		}
	}
}

func checkAnswer(t *testing.T, w *httptest.ResponseRecorder, body []byte) {
	switch w.Code {
	case http.StatusOK:
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("200 %q is no JSON", w.Body)
		}
		var q struct{ Inputs []string }
		var got struct{ Predictions []string }
		if json.Unmarshal(body, &q) == nil && json.Unmarshal(w.Body.Bytes(), &got) == nil && got.Predictions != nil &&
			q.Inputs != nil && bytes.Count(body, []byte("nputs")) == 1 && len(got.Predictions) != len(q.Inputs) {
			t.Errorf("%d predictions for %d inputs", len(got.Predictions), len(q.Inputs))
		}
	case http.StatusUnsupportedMediaType:
	case http.StatusBadRequest:
		var e struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code == "" || e.Message == "" || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("400 %q: %v", w.Body, err)
		}
	default:
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// FuzzStream checks that the output does not depend on how a stream is cut into parts, ends
// with [DONE], and has only data lines and comments.
func FuzzStream(f *testing.F) {
	f.Add("data: {}\n\ndata: [DONE]\n\n", uint8(3), false)
	f.Add("event: a\r\ndata: {\"error\": {\"message\": \"m\"}}\r\n\r\ndata: x\n\n", uint8(1), false)
	f.Add(": c\n\n\n\nid: 1\ndata:x\ndata: y", uint8(7), true)
	f.Add("data: {\"error\": null}\n\ndata: {\"error\": \"t\"}", uint8(200), true)
	f.Fuzz(func(t *testing.T, stream string, size uint8, cut bool) {
		var whole string
		for _, part := range []int{len(stream) + 1, int(size) + 1} {
			h := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for rest := stream; rest != ""; {
					n := min(part, len(rest))
					_, _ = io.WriteString(w, rest[:n])
					rest = rest[n:]
				}
				if cut {
					panic(http.ErrAbortHandler)
				}
			})
			got := post(t.Context(), h, `{"messages": [], "stream": true}`).Body.String()
			if whole == "" {
				whole = got
			}
			if got != whole {
				t.Fatalf("in parts of %d: %q, whole: %q", part, got, whole)
			}
		}
		if stream == "" && cut {
			return // it broke off before it was a stream
		}
		if !strings.HasSuffix("\n\n"+whole, "\n\ndata: [DONE]\n\n") {
			t.Fatalf("%q ends as %q", stream, whole)
		}
		for line := range strings.SplitSeq(whole, "\n") {
			if line != "" && line[0] != ':' && !strings.HasPrefix(line, "data: ") {
				t.Fatalf("%q has the line %q", whole, line)
			}
		}
		if strings.Count("\n"+whole, "\ndata: [DONE]\n") != 1 {
			t.Fatalf("%q has not one end", whole)
		}
	})
}
