package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func smallDescription(t *testing.T) *apiDescription {
	t.Helper()
	d, err := loadDescriptions("testdata/openapi/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestJudge(t *testing.T) {
	d := smallDescription(t)
	const failed = `{"error":{"message":"m","type":"t","param":null,"code":null}}`
	for _, tt := range []struct {
		name, method, path string
		status             int
		body, wrong        string // wrong: words of the error; empty: no error
	}{
		{"an answer", "POST", "/v1/chat/completions", 200, `{"id":"x","note":null}`, ""},
		{"a field of another type", "POST", "/v1/chat/completions", 200, `{"id":7}`, "got number, want string"},
		{"a field that is missing", "POST", "/v1/chat/completions", 200, `{}`, "missing property 'id'"},
		{"no JSON", "POST", "/v1/chat/completions", 200, `{"id":`, "it ends within JSON"},
		{"a failure", "POST", "/v1/responses", 400, failed, ""},
		{"a failure of another shape", "POST", "/v1/responses", 400, `{"error":"m"}`, "got string, want object"},
		{"a failure whose code is a number", "GET", "/v1/models", 404, `{"error":{"message":"m","type":"t","param":null,"code":404}}`, "code"},
		{"a model", "GET", "/v1/models/a/b", 200, `{}`, "missing property 'id'"},
		{"a head", "HEAD", "/v1/models", 200, ``, ""},
		{"a path that is not described", "POST", "/v1/files", 200, `?`, ""},
		{"numbers", "POST", "/v1/embeddings", 200, `{"data":[{"embedding":[1,2]}]}`, ""},
		{"numbers in base64", "POST", "/v1/embeddings", 200, `{"data":[{"embedding":"AACAPwAAAEA="}]}`, ""},
		{"neither", "POST", "/v1/embeddings", 200, `{"data":[{"embedding":"no"}]}`, "got string, want array"},
	} {
		wantJudged(t, tt.name, d.Judge(httpExchange{Method: tt.method, Path: tt.path, Status: tt.status, Body: []byte(tt.body), Whole: true,
			Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}}}), tt.wrong)
	}
	wantJudged(t, "a failure without an ID", d.Judge(httpExchange{Method: "GET", Path: "/v1/models", Status: 404, Body: []byte(failed), Whole: true}), "X-Request-Id")
	wantJudged(t, "a content type", d.Judge(httpExchange{Method: "GET", Path: "/v1/models", Status: 200, Body: []byte(`{"data":[]}`), Whole: true}), "content type")
}

func wantJudged(t *testing.T, name string, got error, wrong string) {
	t.Helper()
	if (got != nil) != (wrong != "") || got != nil && !strings.Contains(got.Error(), wrong) {
		t.Errorf("%s: got %v, want %q", name, got, wrong)
	}
}

func TestJudgeStreams(t *testing.T) {
	d := smallDescription(t)
	const one, two, done = `data: {"id":"x","choices":[],"usage":null}` + "\n\n", `data: {"id":"y","choices":[]}` + "\n\n", "data: [DONE]\n\n"
	const failed = `data: {"error":{"message":"m","type":"t","param":null,"code":null}}` + "\n\n"
	for _, tt := range []struct {
		name, body  string
		cut         bool
		wrong       string
		isResponses bool
	}{
		{name: "whole", body: ": hello\n\n" + one + one + done},
		{name: "no end", body: one, wrong: "ends without [DONE]"},
		{name: "left", body: one + `data: {"id`, cut: true},
		{name: "an error", body: one + failed},
		{name: "an end behind an error", body: one + failed + done, wrong: "[DONE] comes behind an error"},
		{name: "more behind the end", body: one + done + one, wrong: "comes behind the last"},
		{name: "another id", body: one + two + done, wrong: "has the id y"},
		{name: "a chunk that does not fit", body: `data: {"id":"x"}` + "\n\n" + done, wrong: "missing property 'choices'"},
		{name: "usage that does not fit", body: `data: {"id":"x","choices":[],"usage":{}}` + "\n\n" + done, wrong: "missing property 'total'"},
		{name: "a response", body: numbered("response.created|", "response.output_text.delta|a", "response.output_text.delta|b", "response.output_text.done|ab", "response.completed|"), isResponses: true},
		{name: "no end of a response", body: numbered("response.created|"), wrong: "ends with", isResponses: true},
		{name: "parts that are not the whole", body: numbered("response.output_text.delta|a", "response.output_text.done|ab"), wrong: "not what its parts are", isResponses: true},
		{name: "an event behind the last", body: numbered("response.completed|", "response.created|"), wrong: "behind the last", isResponses: true},
		{name: "an event that nobody knows", body: numbered("response.dream|"), wrong: "not described", isResponses: true},
		{name: "a number that is missing", body: strings.Replace(numbered("response.created|"), `"sequence_number":0`, `"sequence_number":1`, 1), wrong: "another number", isResponses: true},
		{name: "another name", body: strings.Replace(numbered("response.created|"), "event: response.created", "event: x", 1), wrong: "has the name", isResponses: true},
	} {
		path := "/v1/chat/completions"
		if tt.isResponses {
			path = "/v1/responses"
		}
		wantJudged(t, tt.name, d.Judge(httpExchange{Method: "POST", Path: path, Status: 200, Body: []byte(tt.body), Whole: !tt.cut, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}}), tt.wrong)
	}
}

// numbered are events of a response, each of a type and a text.
func numbered(all ...string) string {
	var b strings.Builder
	for i, e := range all {
		kind, text, _ := strings.Cut(e, "|")
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,\"item_id\":\"i\",\"delta\":%q,\"response\":{}", kind, kind, i, text)
		if strings.HasSuffix(kind, ".done") {
			fmt.Fprintf(&b, ",\"delta\":null,\"text\":%q", text)
		}
		b.WriteString("}\n\n")
	}
	return b.String()
}

func TestLoadRefused(t *testing.T) {
	if _, err := loadDescriptions("testdata/openapi/nothing.yaml"); err == nil {
		t.Error("a description that is not there was read")
	}
	if _, err := loadDescriptions("testdata/openapi/later.yaml"); err == nil || !strings.Contains(err.Error(), "no description has") {
		t.Errorf("a description without paths: %v", err)
	}
}

// TestTap checks that bytes pass unchanged, also if a side closes one half or both, and that the recorded answers equal
// the real ones.
func TestTap(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "abc")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/echo":
			_, _ = io.Copy(w, r.Body)
		}
	}))
	defer server.Close()
	var mu sync.Mutex
	told := map[string]httpExchange{}
	tap, err := newTap(server.Listener.Addr().String(), func(x httpExchange) {
		mu.Lock()
		defer mu.Unlock()
		told[x.Path] = x
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // on one connection
		resp, err := http.Post("http://"+tap.Addr()+"/echo", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "hello" || err != nil {
			t.Errorf("echoed %q, %v", got, err)
		}
		resp.Body.Close()
	}
	resp, err := http.Get("http://" + tap.Addr() + "/cut")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); string(got) != "abc" || err == nil {
		t.Errorf("the cut answer is %q, %v", got, err)
	}
	resp.Body.Close()
	conn, err := net.DialTimeout("tcp", tap.Addr(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "no HTTP\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "400") {
		t.Errorf("no HTTP is answered %q, %v", line, err)
	}
	conn.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	tap.Close()
	mu.Lock()
	defer mu.Unlock()
	if x := told["/echo"]; string(x.Body) != "hello" || !x.Whole || x.Status != 200 || x.Method != "POST" {
		t.Errorf("of the echo was told %+v", x)
	}
	if x := told["/cut"]; string(x.Body) != "abc" || x.Whole {
		t.Errorf("of the cut answer was told %+v", x)
	}
}

// FuzzJudge: no answer breaks the judge.
func FuzzJudge(f *testing.F) {
	d, err := loadDescriptions("testdata/openapi/small.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/v1/chat/completions", 200, "data: {}\n\ndata: [DONE]\n\n", true)
	f.Add("/v1/responses", 200, numbered("response.created|"), true)
	f.Add("/v1/embeddings", 200, `{"data":[{"embedding":"AACAPw=="}]}`, false)
	f.Fuzz(func(_ *testing.T, path string, status int, body string, stream bool) {
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		_ = d.Judge(httpExchange{Method: "POST", Path: path, Status: status, Body: []byte(body), Whole: true, Header: http.Header{"Content-Type": {kind}}})
	})
}
