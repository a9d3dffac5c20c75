package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOllamaStore serves a store that the real Ollama has made where it lies: by our engine what that can, by Ollama the rest. The
// store is as it was afterwards.
func TestOllamaStore(t *testing.T) {
	t.Parallel()
	program := realOllama(t)
	var linked error
	onPath.Do(func() { linked = os.Symlink(program, filepath.Join(bin, "ollama")) })
	if linked != nil {
		t.Fatal(linked)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	store := makeStore(ctx, t, program, map[string]string{
		"mini:latest": "PARAMETER temperature 0\n",
		"told:v1":     "SYSTEM \"Be brief.\"\nPARAMETER temperature 0\nPARAMETER repeat_penalty 1\nPARAMETER num_thread 1\n",
	})
	before := contents(t, store)
	p := newStrange(t, "--ollama="+store)
	c := newOpenAI(p)
	for _, model := range []string{"mini:latest", "told:v1"} {
		got, err := c.Chat.Completions.New(ctx, chat(model, "echo apple pear"))
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		if text := got.Choices[0].Message.Content; model == "mini:latest" && text != "apple pear" || text == "" {
			t.Errorf("%s answered %q", model, text)
		}
	}
	out, err := p.rouse("ls", "-o", "wide")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"engine, mini:latest", "ollama, told:v1"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if diff := cmp.Diff(before, contents(t, store)); diff != "" {
		t.Errorf("the store has changed (-before +after):\n%s", diff)
	}
}

// makeStore has Ollama make models of pico, each with lines of its own in its Modelfile, and returns the store.
func makeStore(ctx context.Context, t *testing.T, program string, models map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	store := filepath.Join(dir, "models")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+dir, "OLLAMA_MODELS="+store, "OLLAMA_HOST="+address, "OLLAMA_NOPRUNE=1", "OLLAMA_NO_CLOUD=1")
	serve := exec.Command(program, "serve")
	serve.Env = env
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	}()
	if err := retry(func() error {
		resp, err := http.Get("http://" + address)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name, lines := range models {
		modelfile := filepath.Join(dir, "Modelfile")
		text := fmt.Sprintf("FROM %s\n%s", absolute(t, "../engine/pico/pico-q8_0.gguf"), lines)
		if err := os.WriteFile(modelfile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		create := exec.CommandContext(ctx, program, "create", name, "-f", modelfile)
		create.Env = env
		if out, err := create.CombinedOutput(); err != nil {
			t.Fatalf("ollama create %s: %v\n%s", name, err, out)
		}
	}
	return store
}

// contents are the files of a folder with their times and sizes.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
