package activator

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

func TestNames(t *testing.T) {
	b := startBench(t, nil)
	one := b.function("qwen-small", func(f *api.Function) { f.Aliases = []api.ModelName{"gpt-4o-mini", "org/qwen"} })
	b.instance(one, "q-0001", api.Awake)
	two := api.NewFunctionName("team", "llama")
	b.a.PutFunction(api.Function{Name: two, Model: "Llama-3"})
	b.instance(two, "l-0001", api.Awake)
	for _, name := range []string{"qwen-small", "gpt-4o-mini", "org/qwen", "default/qwen-small", "Llama-3", "llama", "team/llama"} {
		if resp, got := b.post(chatPath, `{"model":"`+name+`"}`); resp.StatusCode != 200 {
			t.Errorf("%s: got %s %s", name, resp.Status, got)
		}
	}
	for _, tc := range []struct{ model, want string }{
		{"qwen-smal", `did you mean qwen-small?`},
		{"QWEN", `did you mean org/qwen or qwen-small?`},
		{"llama3", `did you mean Llama-3?`},
		{"something-else-entirely", `does not exist (GET /v1/models lists the names)`},
		{strings.Repeat("x", 5000), `xxx\"…`},
	} {
		resp, got := b.post(chatPath, `{"model":"`+tc.model+`"}`)
		if resp.StatusCode != 404 || !strings.Contains(got, tc.want) || !strings.Contains(got, `"param":"model","code":"model_not_found"`) {
			t.Errorf("%.30s: got %s %s, want %s", tc.model, resp.Status, got, tc.want)
		}
	}
	if resp, got := b.post(chatPath, `{}`); resp.StatusCode != 400 || !strings.Contains(got, `"param":"model"`) {
		t.Errorf("no model: got %s %s", resp.Status, got)
	}
}

func TestClashingNames(t *testing.T) {
	b := startBench(t, nil)
	b.function("a", func(f *api.Function) { f.Aliases = []api.ModelName{"b", "shared"} })
	b.function("b", func(f *api.Function) { f.Aliases = []api.ModelName{"shared"} })
	b.a.PutFunction(api.Function{Name: "other/a", Model: "c"})
	d := b.a.names.Load()
	for name, want := range map[string]api.FunctionName{"a": "default/a", "b": "default/b", "shared": "default/a", "c": "other/a", "other/a": "other/a"} {
		f, err := d.model(name, true)
		if err != nil || f.Name != want {
			t.Errorf("%s: got %v, %v, want %s", name, f, err, want)
		}
	}
}

func TestHosts(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Awake)
	var path string
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.RequestURI
		_, _ = io.Copy(w, r.Body)
	}
	do := func(method, host, target, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, b.ts.URL+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(got)
	}
	for _, tc := range []struct {
		method, host, path, body string
		status                   int
		want                     string
	}{
		// At the function's own host every client path is the function's.
		{"POST", "m.default.localhost:8080", chatPath, `{"model":"anything"}`, 200, `{"model":"anything"}`},
		{"POST", "M.Default.LOCALHOST.", chatPath, `{}`, 200, `{}`},
		{"POST", "m.default.localhost", chatPath, `{"mod`, 400, "ends too early"},
		{"POST", "m.default.localhost", "/anything", "not JSON", 200, "not JSON"},
		{"POST", "m.default.localhost", "/generate", "not JSON", 404, "runs on engine, which has no /generate"},
		{"GET", "m.default.localhost", "/v1/models?x=1", "", 200, ""},
		{"DELETE", "m.default.localhost", "/a%2Fb//c", "", 200, ""},
		// But not the control paths, in any spelling.
		{"POST", "m.default.localhost", "/rouse/v1/sleep", "{}", 404, "unknown_path"},
		{"GET", "m.default.localhost", "/metrics", "", 404, "unknown_path"},
		{"POST", "m.default.localhost", "/adapters/a", "{}", 404, "unknown_path"},
		{"POST", "m.default.localhost", "/adapters", "{}", 404, "unknown_path"},
		{"DELETE", "m.default.localhost", "/x/../adapters/a", "", 404, "unknown_path"},
		{"POST", "localhost", "/serving-endpoints/nobody/invocations", "{}", 404, "model_not_found"},
		{"POST", "m.default.localhost", "//rouse/v1/sleep", "{}", 404, "unknown_path"},
		{"POST", "m.default.localhost", "/x/../rouse/v1/sleep", "{}", 404, "unknown_path"},
		{"POST", "m.default.localhost", "/%72ouse/v1/sleep", "{}", 404, "unknown_path"},
		{"POST", "m.default.localhost", "/Rouse/v1/sleep", "{}", 404, "unknown_path"},
		// Unknown hosts.
		{"POST", "x.default.localhost", chatPath, `{"model":"m"}`, 404, "known are m.default.localhost"},
		{"POST", "m.other.localhost", chatPath, `{"model":"m"}`, 404, "known are m.default.localhost"},
		{"POST", "a.m.default.localhost", chatPath, `{"model":"m"}`, 404, "known are"},
		// The front door.
		{"POST", "localhost:8080", chatPath, `{"model":"m"}`, 200, ""},
		{"POST", "127.0.0.1", chatPath, `{"model":"m"}`, 200, ""},
		{"POST", "[::1]:8080", chatPath, `{"model":"m"}`, 200, ""},
		{"POST", "rouse.example.com", chatPath, `{"model":"m"}`, 200, ""},
		{"POST", "foo.localhost", chatPath, `{"model":"m"}`, 200, ""},
		{"POST", "localhost", "/rouse/v1/sleep", `{"model":"m"}`, 404, "unknown_path"},
		{"POST", "localhost", "/chat/completions", `{"model":"m"}`, 404, "did you mean /v1/chat/completions?"},
		{"POST", "localhost", "//v1/chat/completions", `{"model":"m"}`, 404, "did you mean /v1/chat/completions?"},
		{"POST", "localhost", "/v1/chat/completions/", `{"model":"m"}`, 404, "did you mean /v1/chat/completions?"},
		{"GET", "localhost", "/v1", "", 404, "did you mean /v1/models?"},
		{"POST", "localhost", "/v1/", `{"model":"m"}`, 404, "did you mean /v1/chat/completions?"},
		{"POST", "localhost", "/v1/v1/messages", `{"model":"m"}`, 404, "did you mean /v1/messages?"},
		{"POST", "localhost", "/v1/api/chat", `{"model":"m"}`, 404, "did you mean /api/chat?"},
		{"GET", "localhost", "/v1/models/", "", 404, "did you mean /v1/models?"},
		{"POST", "localhost", "/v1/chat/completion", "", 404, "did you mean /v1/chat/completions?"},
		{"POST", "localhost", "/nothing/", "", 404, "unknown path POST \\\"/nothing/\\\"\""},
		{"GET", "localhost", "/v1/v1/messages/batches", "", 404, "did you mean /v1/messages/batches?"},
		{"POST", "localhost", "/files", "", 404, "did you mean /v1/files?"},
		{"POST", "localhost", "/generate", `{"model":"m"}`, 404, "unknown path POST \\\"/generate\\\""},
		{"GET", "localhost", chatPath, "", 405, "want POST"},
		{"POST", "localhost", "/v1/responses/compact", `{"model":"m"}`, 501, `"conversations are not compacted here`},
		{"POST", "localhost", "/v1/models", "", 405, "want GET"},
		{"POST", "localhost", "/v1/audio/transcriptions", "x", 400, "want multipart/form-data"},
		{"POST", "localhost", "/v1/audio/speech", `{"model":"m"}`, 404, "only vllm, sglang, or a command, may have it"},
		{"POST", "localhost", "/v1/images/generations", `{"model":"m"}`, 404, "only vllm, sglang, ollama, or a command, may have it"},
		{"POST", "localhost", "/v1/images/edits", `{"model":"m"}`, 404, "only vllm, sglang, ollama, or a command, may have it"},
		{"POST", "localhost", "/v1/realtime", "", 405, "want GET"},
		{"GET", "localhost", "/healthz", "", 200, "ok"},
		{"GET", "localhost", "/readyz", "", 200, "ok"},
	} {
		path = ""
		status, got := do(tc.method, tc.host, tc.path, tc.body)
		if status != tc.status || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s%s: got %d %s, want %d %s", tc.method, tc.host, tc.path, status, got, tc.status, tc.want)
		}
		if status == 200 && strings.Contains(tc.host, "m.default") && path != tc.method+" "+tc.path {
			t.Errorf("%s %s%s: the instance saw %s", tc.method, tc.host, tc.path, path)
		}
		if status >= 400 {
			var e struct {
				Error struct{ Message, Type string }
			}
			if err := json.Unmarshal([]byte(got), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
				t.Errorf("%s %s%s: the error is not OpenAI's: %s", tc.method, tc.host, tc.path, got)
			}
		}
	}
}

func TestModels(t *testing.T) {
	b := startBench(t, nil)
	b.function("m", func(f *api.Function) { f.Aliases = []api.ModelName{"org/alias"} })
	b.instance("default/m", "m-0001", api.Asleep)
	resp, err := http.Get(b.ts.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Object string
		Data   []model
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 2 || list.Object != "list" || list.Data[0].ID != "m" || list.Data[1].ID != "org/alias" ||
		list.Data[0].Rouse != (modelState{Function: "default/m", State: api.Asleep}) || list.Data[0].Created == 0 {
		t.Errorf("got %+v", list)
	}
	if as, _ := b.get("/v1/models", "Anthropic-Version", "2023-06-01"); as.Header.Get("Request-Id") == "" || as.Header.Get("Request-Id") != as.Header.Get("X-Request-Id") || resp.Header["Request-Id"] != nil {
		t.Errorf("Anthropic's clients get the headers %v, others %v", as.Header, resp.Header)
	}
	one, err := http.Get(b.ts.URL + "/v1/models/org/alias")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Body.Close()
	var m model
	if err := json.NewDecoder(one.Body).Decode(&m); err != nil || m.ID != "org/alias" || m.Object != "model" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestBadBodies(t *testing.T) {
	b := startBench(t, func(c *Config) { c.Bodies.MaxBody = int64(api.KiB) })
	b.instance(b.function("m", nil), "m-0001", api.Awake)
	for _, tc := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"empty", "", 400, "the body is empty"},
		{"huge", `{"model":"m","x":"` + strings.Repeat("x", 2000) + `"}`, 413, "larger than the limit of 1 KiB"},
		{"truncated", `{"model":"m"`, 400, "ends too early"},
		{"not JSON", "model: m", 400, "not valid JSON"},
		{"wrong type", `{"model":["m"]}`, 400, `"param":"model"`},
		{"invalid UTF-8", "{\"model\":\"\xff\"}", 400, "not valid UTF-8"},
		{"unknown fields pass", `{"model":"m","n":2,"logprobs":true,"max_completion_tokens":3,"stop":["a"],"x":{}}`, 200, `\"x\":{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if resp, got := b.post(chatPath, tc.body); resp.StatusCode != tc.status || !strings.Contains(got, tc.want) {
				t.Errorf("got %s %s, want %d %s", resp.Status, got, tc.status, tc.want)
			}
		})
	}
	if n := b.a.door.Memory().Used(); n != 0 {
		t.Errorf("%d bytes of bodies are counted that are gone", n)
	}
}

func TestMetrics(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	i := b.instance(name, "m-0001", api.Asleep)
	b.grant(i, 1)
	b.post(chatPath, `{"model":"m"}`)
	for range 3 {
		b.post(chatPath, `{"model":"a name that a client made up"}`)
	}
	b.eventually("the gauges are zero, and the wake's answer has come", func() bool {
		s, _ := b.a.Stats(name)
		return s.Running == 0 && strings.Contains(b.metrics(), "rouse_activator_wakes_total{")
	})
	got := b.metrics()
	for _, want := range []string{
		`rouse_activator_requests_total{code="200",function="default/m"} 1`,
		`rouse_activator_requests_total{code="404",function="none"} 3`,
		`rouse_activator_wakes_total{function="default/m",path="direct",result="ok"} 1`,
		`rouse_activator_refused_total{function="none",reason="model_not_found"} 3`,
		`rouse_activator_running_requests{function="default/m"} 0`,
		`rouse_activator_held_requests{function="default/m"} 0`,
		`rouse_activator_held_bytes{function="default/m"} 0`,
		`rouse_activator_hold_seconds_count{function="default/m"} 1`,
		`rouse_activator_ttft_seconds_count{function="default/m"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(got, "made up") {
		t.Error("a client's model name is a label")
	}
	b.a.RemoveFunction(name)
	if got := b.metrics(); strings.Contains(got, "default/m") || !strings.Contains(got, "rouse_activator_requests_total") {
		t.Errorf("after the function was removed: %s", got)
	}
}

// metrics reads /metrics.
func (b *bench) metrics() string {
	resp, err := http.Get(b.ts.URL + "/metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no name":    {},
		"body":       {Name: "a", Bodies: inbound.Config{MaxBody: -1}},
		"memory":     {Name: "a", Bodies: inbound.Config{MaxBody: int64(api.GiB), Memory: int64(api.MiB)}},
		"comments":   {Name: "a", CommentEvery: -1},
		"bad domain": {Name: "a", Domain: "Not A Domain"},
	} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: %+v is valid", name, cfg)
		}
	}
	if err := (Config{Name: "a"}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestCompressedBodies: a compressed body is refused, in the API's own format.
func TestCompressedBodies(t *testing.T) {
	b := startBench(t, nil)
	b.instance(b.function("m", nil), "m-0001", api.Awake)
	for _, tc := range []struct{ path, encoding, want string }{
		{chatPath, "gzip", `"invalid_request_error"`},
		{chatPath, "zstd", `zstd`},
		{"/v1/messages", "gzip", `{"type":"error","error":{"type":"invalid_request_error"`},
	} {
		req, err := http.NewRequest("POST", b.ts.URL+tc.path, strings.NewReader("\x1f\x8b\x08"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", tc.encoding)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 415 || !strings.Contains(string(got), tc.want) || !strings.Contains(string(got), "send it uncompressed") {
			t.Errorf("%s, %s: %d %s, want 415 and %s", tc.path, tc.encoding, resp.StatusCode, got, tc.want)
		}
		if accepts := resp.Header.Get("Accept-Encoding"); accepts != "identity" {
			t.Errorf("%s, %s: Accept-Encoding is %q, want identity", tc.path, tc.encoding, accepts)
		}
	}
}

// TestOnlyModel: a request without a model field is for the only model, or for the one in its query; one for a
// WebSocket is refused with an explanation.
func TestOnlyModel(t *testing.T) {
	b := startBench(t, nil)
	b.instance(b.function("m", nil), "m-0001", api.Awake)
	if resp, got := b.get("/tokenizer_info"); resp.StatusCode != http.StatusOK {
		t.Errorf("the only model's: %s %s", resp.Status, got)
	}
	b.instance(b.function("n", nil), "n-0001", api.Awake)
	for query, want := range map[string]int{"": 400, "?model=n": 200, "?model=x": 404} {
		if resp, got := b.get("/tokenizer_info" + query); resp.StatusCode != want {
			t.Errorf("one of two, %q: %s %s, want %d", query, resp.Status, got, want)
		}
	}
	if resp, got := b.get("/v1/responses", "Upgrade", "websocket", "Connection", "Upgrade"); resp.StatusCode != http.StatusNotImplemented || !strings.Contains(got, `"message":"WebSockets`) {
		t.Errorf("a WebSocket: %s %s", resp.Status, got)
	}
}
