package activator

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestTheOnlyFunction: a client need not name the only function; with two it must.
func TestTheOnlyFunction(t *testing.T) {
	b := startBench(t, nil)
	b.instance(b.function("only", nil), "only-0001", api.Awake)
	for _, body := range []string{`{}`, `{"model":""}`} {
		if resp, got := b.post(chatPath, body); resp.StatusCode != 200 {
			t.Errorf("%s: got %s %s", body, resp.Status, got)
		}
	}
	b.function("second", nil)
	if resp, got := b.post(chatPath, `{}`); resp.StatusCode != 400 || !strings.Contains(got, "the field model is missing or empty") {
		t.Errorf("of two: got %s %s", resp.Status, got)
	}
}

// TestNoOllamaHere: a client that looks for Ollama finds it only if a function has its API.
func TestNoOllamaHere(t *testing.T) {
	b := startBench(t, nil)
	b.function("e", func(f *api.Function) { f.Runtime.Kind = api.RuntimeVLLM })
	ask := func(want int) {
		t.Helper()
		for _, path := range []string{"/api/version", "/api/tags", "/api/ps"} {
			resp, err := http.Get(b.ts.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || want == 404 && !isOllamaError(string(got), "no function here has Ollama's API") {
				t.Errorf("%s: got %s %s, want %d", path, resp.Status, got, want)
			}
		}
	}
	ask(404)
	b.function("e", func(f *api.Function) { f.Runtime.Kind = api.RuntimeEngine })
	ask(200)
}
