package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// realOllama is the path of the program Ollama: $ROUSE_OLLAMA, or what
// make ollama has built. A test without it is skipped, in CI too, which does not build it.
func realOllama(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ROUSE_OLLAMA")
	if path == "" {
		out, err := exec.Command("ollama/build", "-path").Output()
		if err != nil {
			t.Fatalf("ask e2e/ollama/build where it builds Ollama: %v", err)
		}
		path = strings.TrimSpace(string(out))
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("there is no Ollama: make ollama builds it, or name the program in ROUSE_OLLAMA: %v", err)
	}
	return path
}

// onPath puts Ollama on the PATH of every server, once.
var onPath sync.Once

// ollamaModels are the models of the tests, and how they are made: pico, which ships
// with Rouse; count, which counts to seven; endless, which goes on counting.
var ollamaModels = map[string][]string{
	"pico":    nil,
	"count":   {"-words", "8"},
	"endless": {"-words", "0", "-layers", "32"},
}

// newOllama starts a server with the models as functions on Ollama; each takes so many requests at once.
func newOllama(t *testing.T, concurrency int) *place {
	t.Helper()
	program := realOllama(t)
	var linked error
	onPath.Do(func() { linked = os.Symlink(program, filepath.Join(bin, "ollama")) })
	if linked != nil {
		t.Fatal(linked)
	}
	dir := t.TempDir()
	var manifest strings.Builder
	for name, flags := range ollamaModels {
		gguf := filepath.Join(dir, name+".gguf")
		if flags == nil {
			gguf = absolute(t, "../engine/pico/pico-q8_0.gguf")
		} else if out, err := exec.Command(filepath.Join(bin, "tinygguf"), append(flags, "-o", gguf)...).CombinedOutput(); err != nil {
			t.Fatalf("make the model %s: %v\n%s", name, err, out)
		}
		// One thread: ggml's threads spin, and get in each other's way on a busy machine.
		modelfile := fmt.Sprintf("FROM %s\nPARAMETER temperature 0\nPARAMETER repeat_penalty 1\nPARAMETER num_thread 1\n", gguf)
		if err := os.WriteFile(filepath.Join(dir, name+".Modelfile"), []byte(modelfile), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifest, `---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %[1]s}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: ollama, rouse.dev/model: ./%[1]s.Modelfile}}
    spec: {containerConcurrency: %[2]d, containers: [{image: ollama/ollama}]}
`, name, concurrency)
	}
	path := filepath.Join(dir, "functions.yaml")
	if err := os.WriteFile(path, []byte(manifest.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return newStrange(t, "-f", path, "--store", "store")
}

// runners are the processes in which Ollama has its models.
func (p *place) runners(t *testing.T) []string {
	t.Helper()
	all, err := p.processes()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, process := range all {
		if pid, rest, _ := strings.Cut(process, " "); strings.Contains(rest, "ollama runner ") {
			found = append(found, pid)
		}
	}
	return found
}

// native posts to Ollama's own API and returns the answer; its body is the caller's to close.
func (p *place) native(ctx context.Context, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// generated asks for some words of a model that counts, without a stream.
func (p *place) generated(ctx context.Context, model string, words int, more string) (string, error) {
	resp, err := p.native(ctx, "/api/generate", fmt.Sprintf(`{"model":%q,"prompt":"go","stream":false,"options":{"num_predict":%d}%s}`, model, words, more))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got struct{ Response, Error string }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, got.Error)
	}
	return got.Response, nil
}
