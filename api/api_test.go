package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]api.Bytes{
		"0": 0, "1048576": api.MiB, "512Mi": 512 * api.MiB, "2Gi": 2 * api.GiB, "1.5Gi": 1536 * api.MiB, "64k": 64000, "1G": 1e9, " 3Ti ": 3 * api.TiB,
	} {
		if got, err := api.ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "Mi", "1 GB of memory", "NaN", "1e300Gi", "0x", "10Zi"} {
		if got, err := api.ParseBytes(text); err == nil || !strings.Contains(err.Error(), "512Mi or 2Gi") {
			t.Errorf("ParseBytes(%q) = %d, %v; want an error that shows how", text, got, err)
		}
	}
}

func TestBytesPrint(t *testing.T) {
	for b, want := range map[api.Bytes]string{0: "0 B", 1023: "1023 B", api.KiB: "1 KiB", 1536 * api.KiB: "1.5 MiB", 3 * api.GiB: "3 GiB", -2 * api.MiB: "-2 MiB"} {
		if got := b.String(); got != want {
			t.Errorf("Bytes(%d) prints %q, want %q", int64(b), got, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "pico", "qwen2-5-0-5b", strings.Repeat("a", 63)} {
		if err := api.CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "0a", "Pico", "a_b", "a.b", "a/b", "ä", strings.Repeat("a", 64)} {
		if api.CheckName(bad) == nil {
			t.Errorf("CheckName(%q) takes it", bad)
		}
	}
}

func TestFunctionName(t *testing.T) {
	for name, want := range map[api.FunctionName][2]string{"team/pico": {"team", "pico"}, "pico": {"default", "pico"}, api.NewFunctionName("", "x"): {"default", "x"}} {
		if got := [2]string{name.Namespace(), name.Name()}; got != want {
			t.Errorf("%q is %v, want %v", name, got, want)
		}
	}
}

// TestTransportReachesSocketsAndPorts sends a request through each kind of endpoint.
func TestTransportReachesSocketsAndPorts(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	unix := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	unix.Start()
	defer unix.Close()
	tcp := httptest.NewServer(handler)
	defer tcp.Close()
	client := &http.Client{Transport: api.NewTransport(2)}
	for _, e := range []api.Endpoint{api.Endpoint("unix:" + socket), api.Endpoint(tcp.URL)} {
		if err := api.CheckEndpoint(e); err != nil {
			t.Error(err)
		}
		resp, err := client.Get(e.URL("/a/b"))
		if err != nil {
			t.Errorf("%s: %v", e, err)
			continue
		}
		var got [8]byte
		n, _ := resp.Body.Read(got[:])
		resp.Body.Close()
		if string(got[:n]) != "/a/b" {
			t.Errorf("%s answers %q, want the path", e, got[:n])
		}
	}
	client.CloseIdleConnections()
}

func TestCheckEndpointRefuses(t *testing.T) {
	for _, e := range []api.Endpoint{"", "unix:", "localhost:80", "https://a:1", "http://", "http://a:1/path", api.Endpoint("unix:/" + strings.Repeat("x", 107))} {
		if api.CheckEndpoint(e) == nil {
			t.Errorf("CheckEndpoint(%q) takes it", e)
		}
	}
}

// TestAddresses checks that every program accepts addresses with and without http://.
func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		text, reach, listen, tcp string // empty: rejected
	}{
		{"127.0.0.1:8080", "http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080", "http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1:8080"},
		{":8080", "http://:8080", "http://:8080", ":8080"},
		{"http://:0", "http://:0", "http://:0", ":0"},
		{"[::1]:0", "http://[::1]:0", "http://[::1]:0", "[::1]:0"},
		{"unix:/run/a", "unix:/run/a", "unix:/run/a", ""},
		{"http://autoscaler.rouse", "http://autoscaler.rouse", "", ""}, // a port to listen on must be explicit
		{"localhost:http", "", "", ""},
		{"localhost:70000", "http://localhost:70000", "", ""}, // dialling it is the dialer's error
		{"localhost", "", "", ""}, {"8080", "", "", ""}, {"", "", "", ""}, {"unix:", "", "", ""},
		{"https://a:1", "", "", ""}, {"http://a:1/path", "", "", ""}, {"ftp://a:1", "", "", ""},
	} {
		reach, err := api.ParseEndpoint(tc.text)
		if (err == nil) != (tc.reach != "") || err == nil && string(reach) != tc.reach {
			t.Errorf("%q to reach: %q, %v; want %q", tc.text, reach, err, tc.reach)
		}
		listen, err := api.ParseListen(tc.text)
		if (err == nil) != (tc.listen != "") || string(listen) != tc.listen {
			t.Errorf("%q to listen at: %q, %v; want %q", tc.text, listen, err, tc.listen)
		}
		tcp, err := api.ListenAddress(tc.text)
		if (err == nil) != (tc.tcp != "") || tcp != tc.tcp {
			t.Errorf("%q to listen at, by TCP: %q, %v; want %q", tc.text, tcp, err, tc.tcp)
		}
	}
}

func TestErrorBody(t *testing.T) {
	w := httptest.NewRecorder()
	api.WriteError(w, fmt.Errorf("wrapped: %w", api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "it loads").WithRetryAfter(1200*time.Millisecond)))
	if w.Code != 503 || w.Header().Get("Retry-After") != "2" || w.Header().Get("Retry-After-Ms") != "1200" {
		t.Errorf("status %d, headers %v; want 503, Retry-After 2 and 1200 ms", w.Code, w.Header())
	}
	var body struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if e := body.Error; e.Message != "it loads" || e.Code != api.CodeLoading || e.Type != "service_unavailable_error" || e.Param != nil {
		t.Errorf("body %s", w.Body)
	}
}

func TestPlainErrorBody(t *testing.T) {
	w := httptest.NewRecorder()
	api.WriteErrorTo(w, httptest.NewRequest(http.MethodPost, "/api/chat", nil), api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull, "full of \"requests\"").WithRetryAfter(time.Second))
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, headers %v; want 429 and Retry-After 1", w.Code, w.Header())
	}
	if got, want := w.Body.String(), `{"error":"full of \"requests\""}`+"\n"; got != want {
		t.Errorf("body %s, want %s", got, want)
	}
}

// TestErrorsByPath checks that the clients of each API get errors in its shape.
func TestErrorsByPath(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/chat/completions":             `{"error":{"message":"no","type":"`,
		"/v1/messages":                     `{"type":"error","error":{"type":"overloaded_error","message":"no","code":"loading"}}`,
		"/v1/messages/count_tokens":        `{"type":"error","error":{"type":"overloaded_error"`,
		"/api/chat":                        `{"error":"no"}`,
		"/invocations":                     `{"error_code":"TEMPORARILY_UNAVAILABLE","message":"no","error":{"message":"no","type":"service_unavailable_error","param":null,"code":"loading"}}`,
		"/serving-endpoints/a/invocations": `{"error_code":"TEMPORARILY_UNAVAILABLE",`,
	} {
		w := httptest.NewRecorder()
		api.WriteErrorTo(w, httptest.NewRequest(http.MethodPost, path, nil), api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "no"))
		if w.Code != 503 || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
}

func TestAsErrorKnowsTheStandardLibrary(t *testing.T) {
	for err, status := range map[error]int{
		&http.MaxBytesError{Limit: 10}:                413,
		fmt.Errorf("x: %w", context.Canceled):         api.StatusClientClosed,
		fmt.Errorf("x: %w", context.DeadlineExceeded): 504,
		errors.New("anything else"):                   500,
	} {
		if got := api.AsError(err); got.Status != status {
			t.Errorf("AsError(%v) has status %d, want %d", err, got.Status, status)
		}
	}
}

func TestSupersedes(t *testing.T) {
	older, newer := api.InstanceStatus{Seq: 1, State: api.Awake}, api.InstanceStatus{Seq: 2, State: api.Asleep}
	gone := api.InstanceStatus{State: api.Gone}
	if !newer.Supersedes(older) || older.Supersedes(newer) || newer.Supersedes(newer) || !gone.Supersedes(newer) {
		t.Error("want the higher Seq to win, and gone always")
	}
}

// TestParseError parses answers of model servers, of Rouse's parts, and of proxies between them.
func TestParseError(t *testing.T) {
	for body, want := range map[string]api.Error{
		`{"error":{"message":"no such model","type":"x","code":"model_not_found"}}`: {Status: 404, Code: "model_not_found", Message: "no such model"},
		`{"error":{"message":"too long","code":400}}`:                               {Status: 404, Message: "too long"}, // vLLM's code is a number
		`{"error":{"message":"","code":"x"}}`:                                       {Status: 404, Message: `404 Not Found: {"error":{"message":"","code":"x"}}`},
		`{"error":"in Ollama's shape"}`:                                             {Status: 404, Message: `404 Not Found: {"error":"in Ollama's shape"}`},
		" <html>a proxy's</html>\n":                                                 {Status: 404, Message: "404 Not Found: <html>a proxy's</html>"},
		"":                                                                          {Status: 404, Message: "404 Not Found: "},
		strings.Repeat("x", 10_000):                                                 {Status: 404, Message: "404 Not Found: " + strings.Repeat("x", 500)},
	} {
		got := api.ParseError(&http.Response{StatusCode: 404, Status: "404 Not Found"}, []byte(body))
		if got.Status != want.Status || got.Code != api.Errorf(404, want.Code, "").Code || got.Message != want.Message {
			t.Errorf("%.60s: got %d %q %.80q, want %+v", body, got.Status, got.Code, got.Message, want)
		}
	}
}
