package activator

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// ollama declares a function that runs on Ollama.
func (b *bench) ollama(name string, change func(*api.Function)) api.FunctionName {
	return b.function(name, func(f *api.Function) {
		f.Runtime = api.Runtime{Kind: api.RuntimeOllama, Model: name + ".gguf"}
		if change != nil {
			change(f)
		}
	})
}

// send sends a request without a body and returns the answer with its body read.
func (b *bench) send(method, path string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequest(method, b.ts.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(raw)
}

// isOllamaError reports whether a body is an error in Ollama's format, and contains want.
func isOllamaError(body, want string) bool {
	var e map[string]string
	return json.Unmarshal([]byte(body), &e) == nil && len(e) == 1 && strings.Contains(e["error"], want)
}

func TestOllamaRoutesByModel(t *testing.T) {
	b := startBench(t, nil)
	i := b.instance(b.ollama("m", func(f *api.Function) { f.Aliases = []api.ModelName{"org/alias", "x:7b"} }), "m-0001", api.Asleep)
	b.grant(i, 1)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	}
	for _, path := range []string{"/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show"} {
		for _, name := range []string{"m", "m:latest", "org/alias:latest", "x:7b"} {
			body := `{"model":"` + name + `","keep_alive":0}`
			if resp, got := b.post(path, body); resp.StatusCode != 200 || got != path+" "+body {
				t.Errorf("%s of %s: got %s %s, want what was sent", path, name, resp.Status, got)
			}
		}
	}
	if resp, got := b.post(chatPath, `{"model":"m:latest"}`); resp.StatusCode != 200 {
		t.Errorf("a tag at OpenAI's path: got %s %s", resp.Status, got)
	}
	b.function("e", nil)
	if resp, got := b.post(chatPath, `{"model":"e:latest"}`); resp.StatusCode != 404 {
		t.Errorf("a tag for a runtime that has none: got %s %s, want 404", resp.Status, got)
	}
	if resp, got := b.post("/api/show", `{"name":"m"}`); resp.StatusCode != 200 {
		t.Errorf("the old field name: got %s %s", resp.Status, got)
	}
	if wakes := i.wakes.Load(); wakes != 1 {
		t.Errorf("got %d wakes, want one", wakes)
	}
}

// TestOllamaStreams: a waiting client gets no comments, and a stream that is cut ends with a line with the error.
func TestOllamaStreams(t *testing.T) {
	b := startBench(t, func(c *Config) { c.CommentAfter, c.CommentEvery = time.Millisecond, time.Millisecond })
	i := b.instance(b.ollama("m", nil), "m-0001", api.Asleep)
	i.wakeTakes = 30 * time.Millisecond
	b.grant(i, 1)
	lines := "{\"message\":{\"content\":\"hi\"},\"done\":false}\n{\"done\":true,\"done_reason\":\"stop\"}\n"
	var cut string // the part sent before the connection breaks; empty: everything
	i.chat = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		if cut == "" {
			_, _ = io.WriteString(w, lines)
			return
		}
		_, _ = io.WriteString(w, cut)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if resp, got := b.post("/api/chat", `{"model":"m","stream":true}`); resp.StatusCode != 200 || got != lines || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("got %s %q, want the lines alone", resp.Status, got)
	}
	for _, cut = range []string{lines[:44], lines[:20]} {
		_, got := b.post("/api/chat", `{"model":"m","stream":true}`)
		all := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if last := all[len(all)-1]; !isOllamaError(last, "the answer was cut") {
			t.Errorf("cut after %q: got %q, want an error at the end", cut, got)
		}
	}
}

// TestOllamaRuntimeFailsBeforeTheFirstByte: errors in Ollama's format have no code, and the request still goes to
// another instance.
func TestOllamaRuntimeFailsBeforeTheFirstByte(t *testing.T) {
	b := startBench(t, nil)
	name := b.ollama("m", nil)
	broken := b.instance(name, "m-0001", api.Awake)
	broken.chat = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(control.HeaderFailed, api.CodeRuntimeFailed)
		api.WriteErrorTo(w, r, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime failed before it answered"))
	}
	works := b.instance(name, "m-0002", api.Awake)
	for range 4 { // whichever is first
		if resp, got := b.post("/api/chat", `{"model":"m"}`); resp.StatusCode != 200 || resp.Header.Get(control.HeaderFailed) != "" {
			t.Errorf("got %s %s", resp.Status, got)
		}
	}
	if broken.served.Load() == 0 || works.served.Load() != 4 {
		t.Errorf("served: got %d by the broken one and %d by the other", broken.served.Load(), works.served.Load())
	}
}

func TestOllamaErrors(t *testing.T) {
	b := startBench(t, nil)
	b.function("e", func(f *api.Function) { f.Runtime.Kind = api.RuntimeVLLM })
	b.instance(b.function("c", func(f *api.Function) { f.Runtime.Kind = api.RuntimeCommand }), "c-0001", api.Awake)
	full := b.ollama("full", func(f *api.Function) { f.Hold.MaxBytes = 1 })
	b.instance(full, "f-0001", api.Asleep)
	resp, err := http.Post(b.ts.URL+"/api/pull", "", strings.NewReader(`{"model":"full:latest"}`))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || strings.TrimSpace(string(got)) != `{"status":"success"}` {
		t.Errorf("a pull of what is here: %s %s", resp.Status, got)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/api/chat", `{"model":"nobody"}`, 404, `"nobody" does not exist`},
		{"POST", "/api/chat", `{`, 400, "ends too early"},
		{"POST", "/api/chat", `{"model":"full"}`, 429, "rouse.dev/hold-memory"},
		{"POST", "/api/chat", `{"model":"e"}`, 501, "runs on vllm, which does not speak Ollama's API: instead of /api/chat use POST /v1/chat/completions"},
		{"POST", "/api/embed", `{"model":"e:latest"}`, 501, "POST /v1/embeddings"},
		{"POST", "/api/pull", `{"name":"nobody"}`, 404, "the manifest of a function"},
		{"DELETE", "/api/delete", `{"model":"e"}`, 404, "the manifest of a function"},
		{"POST", "/api/blobs/sha256:00", `x`, 404, "the manifest of a function"},
		{"POST", "/api/nothing", `{}`, 404, "unknown path"},
		{"POST", "/api/tags", `{}`, 405, "want GET"},
	} {
		req, err := http.NewRequest(tc.method, b.ts.URL+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.status || !isOllamaError(string(got), tc.want) {
			t.Errorf("%s %s %s: got %s %s, want %d and %q", tc.method, tc.path, tc.body, resp.Status, got, tc.status, tc.want)
		}
		if tc.status == 429 && resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After is %q, want 1", tc.path, resp.Header.Get("Retry-After"))
		}
	}
	if resp, got := b.post("/api/chat", `{"model":"c"}`); resp.StatusCode != 200 {
		t.Errorf("a command may speak anything: got %s %s", resp.Status, got)
	}
	if resp, got := b.post("/api/chat", `{"model":"x"}`, "Host", "c.default.localhost"); resp.StatusCode != 200 {
		t.Errorf("at a function's own host: got %s %s", resp.Status, got)
	}
}

func TestOllamaLists(t *testing.T) {
	b := startBench(t, nil)
	b.instance(b.function("v", func(f *api.Function) { f.Runtime.Kind = api.RuntimeVLLM }), "v-0001", api.Awake)
	b.instance(b.function("h", func(f *api.Function) { f.Runtime.Kind, f.Handler = api.RuntimeEngine, []string{"program"} }), "h-0001", api.Awake)
	b.function("n", func(f *api.Function) { f.Runtime.Kind = api.RuntimeEngine })
	name := b.ollama("m", func(f *api.Function) { f.Aliases = []api.ModelName{"q:7b"}; f.SleepAfter = time.Hour })
	b.ollama("asleep", nil)
	i := startFake(t, name, "m-0001", 1)
	i.status.Memory = api.Memory{Host: api.MiB, Devices: 2, PerDevice: api.GiB}
	details := api.ModelDetails{Format: "gguf", Family: "llama", Families: []string{"llama"}, Size: "1.80M", Quantization: "Q8_0"}
	i.status.Model = &api.ModelFacts{Size: 5 * api.MiB, Context: 4096, Details: details}
	b.a.ObserveInstance(i.set(api.Awake))
	gone := startFake(t, b.ollama("was", nil), "w-0001", 1)
	gone.status.Model = &api.ModelFacts{Size: api.MiB}
	b.a.ObserveInstance(gone.set(api.Awake))
	gone.status.Model = nil
	b.a.ObserveInstance(gone.set(api.Gone))

	var tags struct{ Models []ollamaModel }
	resp, got := b.send("GET", "/api/tags")
	if err := json.Unmarshal([]byte(got), &tags); err != nil || resp.StatusCode != 200 {
		t.Fatalf("tags: %s %s (%v)", resp.Status, got, err)
	}
	var names []string
	for _, m := range tags.Models {
		names = append(names, m.Name)
		want, about := map[string]api.Bytes{"m:latest": 5 * api.MiB, "q:7b": 5 * api.MiB, "was:latest": api.MiB}[m.Name], api.ModelDetails{Families: []string{}}
		if want == 5*api.MiB {
			about = details
		}
		if diff := cmp.Diff(about, m.Details); m.Size != want || diff != "" {
			t.Errorf("tags: %s has %d bytes, want %d; (-want +got):\n%s", m.Name, m.Size, want, diff)
		}
		if m.Model != m.Name || len(m.Digest) != 64 || m.ModifiedAt.IsZero() {
			t.Errorf("tags: got %+v", m)
		}
	}
	if got, want := strings.Join(names, " "), "asleep:latest m:latest n:latest q:7b was:latest"; got != want {
		t.Errorf("tags: got %s, want %s", got, want)
	}
	var ps struct{ Models []runningModel }
	_, got = b.send("GET", "/api/ps")
	if err := json.Unmarshal([]byte(got), &ps); err != nil {
		t.Fatalf("ps: %s (%v)", got, err)
	}
	if len(ps.Models) != 1 || ps.Models[0].Name != "m:latest" || ps.Models[0].Size != api.MiB+2*api.GiB || ps.Models[0].SizeVRAM != 2*api.GiB || ps.Models[0].ContextLength != 4096 || ps.Models[0].Details.Family != "llama" ||
		time.Until(ps.Models[0].ExpiresAt) < 59*time.Minute || time.Until(ps.Models[0].ExpiresAt) > time.Hour {
		t.Errorf("ps: got %s", got)
	}
	for path, want := range map[string]string{"/": "Rouse is running\n", "/api/version": `{"version":"` + ollamaVersion + "\"}\n"} {
		if resp, got := b.send("GET", path); resp.StatusCode != 200 || got != want {
			t.Errorf("%s: got %s %q, want %q", path, resp.Status, got, want)
		}
	}
	if resp, _ := b.send("HEAD", "/"); resp.StatusCode != 200 {
		t.Errorf("HEAD /: got %s", resp.Status)
	}
}
