package runtime_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// anOllama returns a runtime for a model, with a fake program.
func anOllama(t *testing.T, model string, env ...string) runtime.Runtime {
	t.Helper()
	return adapter(t, api.Runtime{Kind: api.RuntimeOllama, Model: model, Command: []string{program(t, "ollama"), "serve"}, Env: env})
}

// aStore creates an Ollama store with empty models.
func aStore(t *testing.T, models ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, m := range append(models, "") {
		path := filepath.Join(dir, "manifests", filepath.FromSlash(m))
		if m == "" {
			path = filepath.Join(dir, "blobs", "x")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if m != "" {
			write(t, path, `{"config":{"digest":"sha256:`+strings.Repeat("0", 64)+`"}}`)
			write(t, filepath.Join(dir, "sha256-"+strings.Repeat("0", 64)), "")
		}
	}
	return dir
}

func TestOllamaLaunch(t *testing.T) {
	store := aStore(t, "registry.ollama.ai/library/qwen/0.5b", "registry.ollama.ai/library/qwen/latest")
	one := aStore(t, "hf.co/org/x/Q4")
	gguf := write(t, filepath.Join(t.TempDir(), "x.gguf"), "GGUF")
	env := func(store string) []string {
		return []string{
			"HOME=/h", "OLLAMA_HOST=127.0.0.1:PORT", "HOME=DIR/ollama", "OLLAMA_MODELS=" + store, "OLLAMA_KEEP_ALIVE=-1",
			"OLLAMA_MAX_LOADED_MODELS=1", "OLLAMA_NOPRUNE=1", "OLLAMA_NO_CLOUD=1", "OLLAMA_NUM_PARALLEL=4",
		}
	}
	for name, tt := range map[string]struct {
		model, loads string // declared, fetched
		env          []string
		store        string
		fails        string
	}{
		"a name":                {model: "qwen:0.5b", env: []string{"OLLAMA_MODELS=" + store}, store: store},
		"a name without a tag":  {model: "qwen", env: []string{"OLLAMA_MODELS=" + store}, store: store},
		"a name nobody has":     {model: "llama", env: []string{"OLLAMA_MODELS=" + store}, fails: "ollama pull llama"},
		"a name that escapes":   {model: "../../x", fails: "GGUF file"},
		"a fetched store":       {model: "ollama://qwen:0.5b", loads: store, store: store},
		"a store with one":      {model: one, store: one},
		"a store with several":  {model: store, fails: "2 models"},
		"a file":                {model: "https://example.org/x.gguf", loads: gguf, store: "DIR/ollama/models"},
		"a file that is absent": {model: "/absent.gguf", fails: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, api.Runtime{Kind: api.RuntimeOllama, Model: tt.model, Command: []string{program(t, "ollama"), "serve"}, Env: tt.env})
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			loads := tt.loads
			if loads == "" {
				loads = tt.model
			}
			if tt.fails != "" {
				if _, err := r.Launch(loads); err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("launch: %v, want %s", err, tt.fails)
				}
				return
			}
			l := launched(t, r, loads)
			for i := range l.Env {
				l.Env[i] = strings.ReplaceAll(l.Env[i], cfg.Dir, "DIR")
			}
			want := slices.Concat(env(tt.store), tt.env, []string{"OLLAMA_MODELS=" + tt.store})
			if diff := cmp.Diff(want, l.Env); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// aForm returns a form like those for audio; a file may hold anything.
func aForm(model string) string {
	return strings.ReplaceAll(`--b
Content-Disposition: form-data; name="file"; filename="model"

--c
Content-Disposition: form-data; name="model"

m
--b
content-disposition: form-data; name=model

`+model+`
--b
Content-Disposition: form-data; name="language"

m
--b--
`, "\n", "\r\n")
}

func TestOllamaRequest(t *testing.T) {
	store := aStore(t, "registry.ollama.ai/library/qwen/0.5b")
	r := anOllama(t, "qwen:0.5b", "OLLAMA_MODELS="+store)
	if _, err := r.Launch("qwen:0.5b"); err != nil {
		t.Fatal(err)
	}
	const chat, generate, complete = "/v1/chat/completions", "/api/generate", "/v1/completions"
	for _, tt := range []struct{ path, body, want string }{
		{chat, `{"model":"qwen:0.5b", "x": 1}`, `{"model":"qwen:0.5b", "x": 1}`},
		{chat, `{"model":"m"}`, `{"model":"qwen:0.5b"}`},
		{chat, `{"model":"n:latest"}`, `{"model":"qwen:0.5b"}`},
		{chat, `{"MODEL":"default"}`, `{"MODEL":"qwen:0.5b"}`},
		{chat, `{"model":"m","max_completion_tokens":3}`, `{"model":"qwen:0.5b","max_tokens":3}`},
		{chat, `{"max_completion_tokens":3,"max_tokens":4}`, `{"max_completion_tokens":3,"max_tokens":4,"model":"qwen:0.5b"}`},
		{chat, `{"max_completion_tokens":3,"max_tokens":null}`, `{"max_tokens":3,"model":"qwen:0.5b"}`},
		{"/v1/responses", `{"max_completion_tokens":3}`, `{"max_completion_tokens":3,"model":"qwen:0.5b"}`},
		{chat, `{}`, `{"model":"qwen:0.5b"}`},
		{chat, `{"model":null,"name":"x"}`, `{"model":"qwen:0.5b","name":"x"}`},
		{generate, `{"Model":""}`, `{"Model":"qwen:0.5b"}`},
		{generate, `{"keep_alive":0,"model":"m","keep\u005falive":1,"Keep_Alive":2}`, `{"model":"qwen:0.5b"}`},
		{complete, `{"prompt":["one"]}`, `{"prompt":"one","model":"qwen:0.5b"}`},
		{complete, `{"prompt":["one","two"]}`, `{"prompt":["one","two"],"model":"qwen:0.5b"}`},
		{complete, `{"prompt":[[1,2]]}`, `{"prompt":[[1,2]],"model":"qwen:0.5b"}`},
		{generate, `{"prompt":["one"]}`, `{"prompt":["one"],"model":"qwen:0.5b"}`},
		{"/v1/audio/transcriptions", aForm("m"), aForm("qwen:0.5b")},
		{"/v1/audio/transcriptions", aForm("llama"), `the model "llama" is not here: this function serves "m"`},
		{generate, `{"options":{"keep_alive":0}}`, `{"options":{"keep_alive":0},"model":"qwen:0.5b"}`},
		{generate, `{"model":"library/qwen:0.5b"}`, `{"model":"qwen:0.5b"}`},
		{"/api/show", `{"name":"m"}`, `{"name":"qwen:0.5b"}`},
		{"/api/show", `{"model":"","name":"m"}`, `{"model":"","name":"qwen:0.5b"}`},
		{generate, ``, ``},
		{generate, `{"model":7}`, `{"model":7}`},
		{generate, `{"model":"llama"}`, `the model "llama" is not here: this function serves "m"`},
		{generate, `{"keep_alive":0} {}`, `the body is no JSON object: `},
		{generate, `[{"keep_alive":0}]`, `the body is no JSON object: `},
	} {
		got := request(t, r, tt.path, tt.body)
		if got != tt.want && (!strings.HasSuffix(tt.want, ": ") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s %s becomes %s, want %s", tt.path, tt.body, got, tt.want)
		}
	}
}

const generated = `POST /api/generate {"keep_alive":-1,"model":"qwen","options":{"num_predict":1},"prompt":"a","raw":true,"stream":false}`

// TestOllamaStream: requests without a stream are asked for as one, and no others.
func TestOllamaStream(t *testing.T) {
	r, is := anOllama(t, "m").(interface {
		Stream(path string, body *jsonfield.Object) bool
	})
	if !is {
		t.Fatal("Ollama is asked for no streams")
	}
	for _, tc := range []struct{ path, body, want string }{
		{"/v1/chat/completions", `{"model":"m"}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"/v1/completions", `{"stream":false,"model":"m"}`, `{"stream":true,"model":"m","stream_options":{"include_usage":true}}`},
		{"/v1/completions", `{"Stream":null,"stream_options":{"include_usage":false}}`, `{"Stream":true,"stream_options":{"include_usage":true}}`},
		{"/v1/chat/completions", `{"stream":true}`, ""},
		{"/v1/chat/completions", `{"stream":"yes"}`, ""},
		{"/v1/chat/completions", `{"_debug_render_only":true}`, ""},
		{"/v1/chat/completions", `{`, ""},
		{"/v1/chat/completions", ``, ""},
		{"/v1/embeddings", `{"model":"m"}`, ""},
		{"/v1/responses", `{"model":"m"}`, ""},
		{"/api/chat", `{"model":"m","stream":false}`, ""},
	} {
		body := jsonfield.Open([]byte(tc.body))
		joins := r.Stream(tc.path, body)
		if joins != (tc.want != "") || joins && !sameFields(t, body.Bytes(), tc.want) {
			t.Errorf("%s %s: got %s, %t; want %s", tc.path, tc.body, body.Bytes(), joins, tc.want)
		}
	}
}

// sameFields compares two objects, ignoring the case of their names.
func sameFields(t *testing.T, got []byte, want string) bool {
	t.Helper()
	var a, b map[string]any
	if err := errors.Join(json.Unmarshal(bytes.ToLower(got), &a), json.Unmarshal(bytes.ToLower([]byte(want)), &b)); err != nil {
		t.Error(err)
	}
	return cmp.Equal(a, b)
}

func TestOllamaProbe(t *testing.T) {
	one := `{"done":true,"done_reason":"length","eval_count":1}`
	embed := `POST /api/embed {"input":"a","keep_alive":-1,"model":"qwen"}`
	show := `POST /api/show {"model":"qwen"}`
	for name, tt := range map[string]struct {
		answer []answer // to /api/generate
		embeds string
		calls  []string
		fails  string
	}{
		"generates":       {answer: []answer{{200, one}}, calls: []string{show, generated}},
		"ends at once":    {answer: []answer{{200, `{"done":true,"done_reason":"stop"}`}}, calls: []string{show, generated}},
		"loads only":      {answer: []answer{{200, `{"done":true,"done_reason":"load"}`}}, calls: []string{show, generated}, fails: "no token"},
		"embeds":          {answer: []answer{{400, `{"error":"\"qwen\" does not support generate"}`}}, embeds: `{"embeddings":[[0.5]]}`, calls: []string{show, generated, embed}},
		"embeds nothing":  {answer: []answer{{400, `{"error":"\"qwen\" does not support generate"}`}}, embeds: `{"embeddings":[]}`, calls: []string{show, generated, embed}, fails: "no embedding"},
		"does not load":   {answer: []answer{{500, `{"error":"model requires more system memory"}`}}, calls: []string{show, generated}, fails: "more system memory"},
		"model went away": {answer: []answer{{404, `{"error":"model 'qwen' not found"}`}}, calls: []string{show, generated}, fails: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t).on("POST /api/show", 200, "{}").on("POST /api/embed", 200, tt.embeds)
			for _, a := range tt.answer {
				f.on("POST /api/generate", a.status, a.body)
			}
			err := adapter(t, api.Runtime{Kind: api.RuntimeOllama, Model: "qwen", Endpoint: f.endpoint()}).Probe(t.Context(), f.endpoint())
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("probe: %v, want %q", err, tt.fails)
			}
			f.asked(tt.calls...)
		})
	}
}

// A sleep is over when the model is not listed any more, and no earlier.
func TestOllamaSleep(t *testing.T) {
	loaded := `{"models":[{"name":"other:latest"},{"name":"qwen:latest","model":"qwen:latest"}]}`
	f := newFake(t).on("POST /api/generate", 200, `{"done":true,"done_reason":"unload"}`).
		on("GET /api/ps", 200, loaded).on("GET /api/ps", 200, loaded).on("GET /api/ps", 200, `{"models":[{"name":"other:latest"}]}`)
	r := adapter(t, api.Runtime{Kind: api.RuntimeOllama, Model: "qwen", Endpoint: f.endpoint()})
	if err := r.Sleep(t.Context(), f.endpoint(), api.Level1); err != nil {
		t.Fatal(err)
	}
	f.asked(`POST /api/generate {"keep_alive":0,"model":"qwen","stream":false}`, "GET /api/ps", "GET /api/ps", "GET /api/ps")
}

// TestDescribe reads what a server says of its model: Ollama in its lists, the engine in its description.
func TestDescribe(t *testing.T) {
	details := api.ModelDetails{Format: "gguf", Family: "llama", Families: []string{"llama"}, Size: "1.80M", Quantization: "Q8_0"}
	const said = `"details":{"format":"gguf","family":"llama","families":["llama"],"parameter_size":"1.80M","quantization_level":"Q8_0"}`
	whole := api.ModelFacts{Size: 7, Context: 4096, Details: details}
	listed := func(tags, ps string) *fake {
		return newFake(t).on("GET /api/tags", 200, `{"models":[{"name":"other:latest","size":9},`+tags+`]}`).on("GET /api/ps", 200, `{"models":[`+ps+`]}`)
	}
	entry, loaded := `{"name":"qwen:latest","size":7,`+said+`}`, `{"name":"qwen:latest","size":70,"context_length":4096}`
	for name, tc := range map[string]struct {
		kind  string
		f     *fake
		want  api.ModelFacts
		fails bool
	}{
		"Ollama":               {api.RuntimeOllama, listed(entry, loaded), whole, false},
		"Ollama, not loaded":   {api.RuntimeOllama, listed(entry, ""), api.ModelFacts{Size: 7, Details: details}, false},
		"Ollama, another":      {api.RuntimeOllama, listed(`{"name":"qwen:7b"}`, loaded), api.ModelFacts{}, false},
		"Ollama without lists": {api.RuntimeOllama, newFake(t), api.ModelFacts{}, true},
		"engine":               {api.RuntimeEngine, newFake(t).on("POST /api/show", 200, `{"size":7,"parameters":"num_ctx   4096\nstop \"</s>\"",`+said+`}`), whole, false},
		"engine, no context":   {api.RuntimeEngine, newFake(t).on("POST /api/show", 200, `{"size":7,"parameters":"stop 5",`+said+`}`), api.ModelFacts{Size: 7, Details: details}, false},
		"engine, of no file":   {api.RuntimeEngine, newFake(t).on("POST /api/show", 501, `{}`), api.ModelFacts{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := runtime.Config{Spec: api.Runtime{Kind: tc.kind, Model: "qwen"}, Model: "qwen", Dir: t.TempDir(), Engine: "rouse"}
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.(runtime.Describer).Describe(t.Context(), tc.f.endpoint())
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.fails {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// moreDigest is the digest of "GGUF and more".
const moreDigest = "sha256:144581c14596a699068df44aa4ca0ed507e2d4a875f409e78b6319ec468379b3"

// The server creates the model from the given files, and gets them only once.
func TestOllamaMakes(t *testing.T) {
	dir := t.TempDir()
	gguf := write(t, filepath.Join(dir, "x.gguf"), "GGUF and more")
	modelfile := write(t, filepath.Join(dir, "Modelfile"), "FROM ./x.gguf\nSYSTEM be kind\nPARAMETER num_ctx 512\n")
	cfg := config(t, api.Runtime{Kind: api.RuntimeOllama, Model: modelfile, Command: []string{program(t, "ollama"), "serve"}})
	r, err := runtime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Launch(modelfile); err != nil {
		t.Fatal(err)
	}
	blob := moreDigest
	create := `POST /api/create {"files":{"model-0.gguf":"` + blob + `"},"model":"m","parameters":{"num_ctx":512},"stream":false,"system":"be kind"}`
	probe := strings.Replace(generated, "qwen", "m", 1)
	f := newFake(t).on("POST /api/show", 404, `{"error":"model 'm' not found"}`).on("HEAD /api/blobs/"+blob, 200, "").
		on("POST /api/create", 500, `{"error":"no space"}`).on("POST /api/create", 200, `{"status":"success"}`).
		on("POST /api/generate", 200, `{"done":true,"eval_count":1}`)
	if err := r.Probe(t.Context(), f.endpoint()); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("probe: %v, want why the model was not made", err)
	}
	f.asked(`POST /api/show {"model":"m"}`, "HEAD /api/blobs/"+blob, create)
	for _, want := range [][]string{{`POST /api/show {"model":"m"}`, "HEAD /api/blobs/" + blob, create, probe}, {probe}} {
		if err := r.Probe(t.Context(), f.endpoint()); err != nil {
			t.Fatal(err)
		}
		f.asked(want...)
	}
	linked := filepath.Join(cfg.Dir, "ollama", "models", "blobs", strings.Replace(blob, ":", "-", 1))
	if !sameFile(t, linked, gguf) {
		t.Errorf("%s is not %s", linked, gguf)
	}
}

// A server whose store is out of reach is sent the file.
func TestOllamaUploads(t *testing.T) {
	gguf := write(t, filepath.Join(t.TempDir(), "x.gguf"), "GGUF and more")
	r := anOllama(t, gguf)
	if _, err := r.Launch(gguf); err != nil {
		t.Fatal(err)
	}
	blob := moreDigest
	f := newFake(t).on("POST /api/show", 404, `{}`).on("POST /api/blobs/"+blob, 201, "").on("POST /api/create", 200, "{}").
		on("POST /api/generate", 200, `{"done":true,"eval_count":1}`)
	if err := r.Probe(t.Context(), f.endpoint()); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := "POST /api/blobs/" + blob + " GGUF and more"; !slices.Contains(f.calls, want) {
		t.Errorf("calls: %q, want %q among them", f.calls, want)
	}
}
