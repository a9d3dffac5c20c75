package runtime_test

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// realOllama returns the path of an Ollama, by ROUSE_OLLAMA or PATH.
func realOllama(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
	path := os.Getenv("ROUSE_OLLAMA")
	if path == "" {
		var err error
		if path, err = exec.LookPath("ollama"); err != nil {
			t.Skip("no Ollama: set ROUSE_OLLAMA to its path, or put it into PATH")
		}
	}
	return path
}

// tinyModel writes a GGUF file whose answers are " w0 w1 …".
func tinyModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	out, err := exec.CommandContext(t.Context(), "go", "run", "../../e2e/tinygguf", "-o", path).CombinedOutput()
	if err != nil {
		t.Fatalf("make a model: %v: %s", err, out)
	}
	return path
}

// running is an Ollama that a runtime has launched.
type running struct {
	runtime.Runtime
	launch runtime.Launch
}

// start launches a runtime and waits for its first token.
func start(t *testing.T, cfg runtime.Config, model string) running {
	t.Helper()
	r := startOnly(t, cfg, model)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := runtime.Await(ctx, r, r.launch.Endpoint, nil, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// startOnly is start without the wait.
func startOnly(t *testing.T, cfg runtime.Config, model string) running {
	t.Helper()
	cfg.Transport = api.NewTransport(2)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Env = append(os.Environ(), cfg.Env...)
	cfg.Spec.Env = append(cfg.Spec.Env, "OLLAMA_CONTEXT_LENGTH=2048")
	r, err := runtime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Launch(model)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(l.Path, l.Args...)
	cmd.Env = l.Env
	output := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Ollama says:\n%s", output)
		}
	})
	return running{r, l}
}

// post sends a client's request through the dialect.
func (r running) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	changed := jsonfield.Open([]byte(body))
	if refused := r.Request(path, changed); refused != nil {
		return refused.Status, refused.Message
	}
	resp, err := http.Post(r.launch.Endpoint.URL(path), "application/json", strings.NewReader(string(changed.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 400 {
		raw = r.Failure(path, resp.StatusCode, raw)
	}
	return resp.StatusCode, string(raw)
}

// loaded returns Ollama's list of loaded models.
func (r running) loaded(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(r.launch.Endpoint.URL("/api/ps"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func ollamaConfig(program, model string) runtime.Config {
	return runtime.Config{
		Spec:  api.Runtime{Kind: api.RuntimeOllama, Model: model, Command: []string{program, "serve"}},
		Model: "tiny", Aliases: []api.ModelName{"team/tiny"}, Concurrency: 1,
	}
}

// Ollama is asked once about an unusable model.
func TestRealOllamaHopeless(t *testing.T) {
	program, gguf := realOllama(t), tinyModel(t)
	good, err := os.ReadFile(gguf)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"architecture": strings.ReplaceAll(string(good), "llama", "zzzzz"),
		"version":      string(good[:4]) + "\x63" + string(good[5:]),
		"cut off":      string(good[:len(good)*2/3]),
		"tensor":       strings.ReplaceAll(string(good), "output_norm.weight", "output_norm.veight"),
		"vocabulary":   strings.ReplaceAll(string(good), "tokenizer.ggml.tokens", "tokenizer.ggml.tokenz"),
	} {
		t.Run(name, func(t *testing.T) {
			model := write(t, filepath.Join(t.TempDir(), "bad.gguf"), bad)
			r := startOnly(t, ollamaConfig(program, model), model)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := runtime.Await(ctx, r, r.launch.Endpoint, nil, nil); !runtime.Permanent(err) {
				t.Errorf("got %v, want that this lasts", err)
			} else {
				t.Log(err)
			}
		})
	}
}

// The whole life with a Modelfile: created, loaded, asked by every name, asleep, awake; then its folder is a store, from which other
// functions run.
func TestRealOllama(t *testing.T) {
	program, gguf := realOllama(t), tinyModel(t)
	template := "TEMPLATE \"\"\"{{- range .Messages }}{{ .Role }}: {{ .Content }}\n{{ end }}assistant:\"\"\"\n"
	modelfile := write(t, filepath.Join(filepath.Dir(gguf), "Modelfile"),
		"FROM ./tiny.gguf\n"+template+"PARAMETER temperature 0\nPARAMETER num_thread 1\nPARAMETER stop STOP\n")
	cfg := ollamaConfig(program, modelfile)
	cfg.Dir = t.TempDir()
	r := start(t, cfg, modelfile)
	store := filepath.Join(cfg.Dir, "ollama", "models")
	if home, err := os.ReadDir(filepath.Dir(store)); err != nil || len(home) < 2 {
		t.Errorf("its home, with its identity, is not in the instance's folder: %v, %v", home, err)
	}
	blobs, err := filepath.Glob(filepath.Join(store, "blobs", "*"))
	if err != nil || !slices.ContainsFunc(blobs, func(b string) bool { return sameFile(t, b, gguf) }) {
		t.Errorf("the model was copied: none of %v is %s (%v)", blobs, gguf, err)
	}
	t.Run("names", r.testNames)
	t.Run("keep_alive", r.testKeepAlive)
	t.Run("sleep", r.testSleep)

	t.Run("store", func(t *testing.T) {
		start(t, ollamaConfig(program, store), store).says(t, "tiny", " w0 w1")
	})
	t.Run("name", func(t *testing.T) {
		cfg := ollamaConfig(program, "tiny")
		cfg.Model, cfg.Env = "other-name", []string{"OLLAMA_MODELS=" + store}
		start(t, cfg, "tiny").says(t, "other-name", " w0 w1")
	})
	t.Run("from a name", func(t *testing.T) {
		path := write(t, filepath.Join(t.TempDir(), "Modelfile"), "FROM tiny\nPARAMETER num_predict 1\n")
		before := files(t, store)
		cfg := ollamaConfig(program, path)
		cfg.Model, cfg.Env = "short", []string{"OLLAMA_MODELS=" + store}
		second := start(t, cfg, path)
		if status, answer := second.post(t, "/api/generate", `{"model":"short","prompt":"a","stream":false}`); status != 200 || !strings.Contains(answer, `"response":" w0"`) {
			t.Errorf("answer: %d %s, want one token", status, answer)
		}
		if after := files(t, store); !slices.Equal(before, after) {
			t.Errorf("the store changed: %v, then %v", before, after)
		}
	})
	t.Run("sidecar", r.testSidecar)
}

// says expects a completion of two tokens.
func (r running) says(t *testing.T, name, want string) {
	t.Helper()
	status, answer := r.post(t, "/v1/completions", `{"model":"`+name+`","prompt":"a","max_tokens":2}`)
	if status != 200 || !strings.Contains(answer, `"`+want+`"`) {
		t.Errorf("answer: %d %s, want %q", status, answer, want)
	}
}

func (r running) testNames(t *testing.T) {
	for _, name := range []string{"tiny", "team/tiny", "default", "tiny:latest"} {
		status, answer := r.post(t, "/v1/chat/completions", `{"model":"`+name+`","max_completion_tokens":3,"messages":[{"role":"user","content":"hi"}]}`)
		if status != 200 || !strings.Contains(answer, `"content":" w0 w1 w2"`) || !strings.Contains(answer, `"model":"tiny`) {
			t.Errorf("%s: %d %s, want three words", name, status, answer)
		}
	}
	if status, answer := r.post(t, "/v1/chat/completions", `{"model":"other","messages":[]}`); status != 404 || !strings.Contains(answer, "other") {
		t.Errorf("another model: %d %s, want a 404", status, answer)
	}
	if status, answer := r.post(t, "/v1/chat/completions", `{"model":"tiny","messages":"no list"}`); status != 400 || !strings.Contains(answer, `"type":"invalid_request_error"`) {
		t.Errorf("bad messages: %d %s, want an OpenAI error", status, answer)
	}
}

// A client can't unload the model, in any spelling.
func (r running) testKeepAlive(t *testing.T) {
	for _, field := range []string{`"keep_alive":0`, `"Keep_Alive":"0s"`, `"keep\u005falive":0`} {
		if status, answer := r.post(t, "/api/generate", `{"model":"tiny",`+field+`}`); status != 200 {
			t.Errorf("%s: %d %s", field, status, answer)
		}
		if list := r.loaded(t); !strings.Contains(list, `"name":"tiny`) {
			t.Errorf("after %s: %s is loaded, want tiny", field, list)
		}
	}
}

func (r running) testSleep(t *testing.T) {
	for _, level := range []api.Level{api.Level1, api.Level2} {
		begin := time.Now()
		if err := r.Sleep(t.Context(), r.launch.Endpoint, level); err != nil {
			t.Fatal(err)
		}
		asleep := time.Since(begin)
		if list := r.loaded(t); strings.Contains(list, "tiny") {
			t.Errorf("asleep: %s is loaded", list)
		}
		begin = time.Now()
		if _, err := r.Wake(t.Context(), r.launch.Endpoint, level, nil); err != nil {
			t.Fatal(err)
		}
		t.Logf("level %d: sleep %v, wake %v", level, asleep, time.Since(begin))
		r.says(t, "tiny", " w0 w1")
	}
}

func (r running) testSidecar(t *testing.T) {
	cfg := ollamaConfig("", "tiny")
	cfg.Spec.Command, cfg.Spec.Endpoint, cfg.Transport = nil, r.launch.Endpoint, api.NewTransport(1)
	s, err := runtime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Launch("tiny")
	if err != nil || !l.Attach || l.Endpoint != r.launch.Endpoint {
		t.Fatalf("launch: %+v, %v", l, err)
	}
	if err := s.Probe(t.Context(), l.Endpoint); err != nil {
		t.Error(err)
	}
	cfg.Spec.Model = "absent"
	if s, err = runtime.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context(), l.Endpoint); err == nil || !strings.Contains(err.Error(), "pull it there") {
		t.Errorf("probe of a model that is not there: %v", err)
	}
}

// A GGUF file alone is enough.
func TestRealOllamaGGUF(t *testing.T) {
	program, gguf := realOllama(t), tinyModel(t)
	r := start(t, ollamaConfig(program, "https://example.org/tiny.gguf"), gguf)
	r.says(t, "tiny", " w0 w1")
}

// A model that only embeds is awake when it has embedded, and sleeps as others do.
func TestRealOllamaEmbeds(t *testing.T) {
	program, gguf := realOllama(t), tinyModel(t)
	onlyEmbeds(t, gguf)
	r := start(t, ollamaConfig(program, gguf), gguf)
	if status, answer := r.post(t, "/v1/embeddings", `{"model":"tiny","input":"w0"}`); status != 200 || !strings.Contains(answer, `"embedding":[`) {
		t.Errorf("embedding: %d %.200s", status, answer)
	}
	if status, answer := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"w0"}`); status != 400 || !strings.Contains(answer, `"code":null`) {
		t.Errorf("completion: %d %s, want an OpenAI error", status, answer)
	}
	if err := r.Sleep(t.Context(), r.launch.Endpoint, api.Level1); err != nil {
		t.Fatal(err)
	}
	if list := r.loaded(t); strings.Contains(list, "tiny") {
		t.Errorf("asleep: %s is loaded", list)
	}
	if _, err := r.Wake(t.Context(), r.launch.Endpoint, api.Level1, nil); err != nil {
		t.Fatal(err)
	}
}

// onlyEmbeds marks a model as one for embeddings: it adds a pooling type before its first field, with padding that keeps the tensors
// aligned to 32 bytes.
func onlyEmbeds(t *testing.T, gguf string) {
	t.Helper()
	raw, err := os.ReadFile(gguf)
	if err != nil {
		t.Fatal(err)
	}
	const typeUint32, typeString = 4, 8
	text := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	fields := binary.LittleEndian.AppendUint32(text(nil, "llama.pooling_type"), typeUint32)
	fields = binary.LittleEndian.AppendUint32(fields, 1)
	fields = binary.LittleEndian.AppendUint32(text(fields, "x"), typeString)
	fields = text(fields, strings.Repeat("x", 64-len(fields)-8))
	binary.LittleEndian.PutUint64(raw[16:], binary.LittleEndian.Uint64(raw[16:])+2)
	if err := os.WriteFile(gguf, slices.Insert(raw, 24, fields...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		out = append(out, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
