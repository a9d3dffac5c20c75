package activator

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// Errors at Anthropic's paths are Anthropic's, whoever makes them.
func TestErrorsOfMessages(t *testing.T) {
	b := startBench(t, nil)
	for path, body := range map[string]string{
		"/v1/messages":              `{"model":"nobody"}`,
		"/v1/messages/count_tokens": `{"model":`,
		"/v1/messages/batches":      `{}`,
	} {
		if resp, got := b.post(path, body); resp.StatusCode/100 != 4 || !strings.HasPrefix(got, `{"type":"error","error":{"type":"`) {
			t.Errorf("%s: got %s %s", path, resp.Status, got)
		}
	}
}

// Every path whose body names a model is served at the front door, as at a function's own host.
func TestPathsThatNameAModel(t *testing.T) {
	b := startBench(t, nil)
	for path, known := range api.ClientPaths {
		if known.Model != api.ModelInJSON || known.Instead != "" { // Ollama's have errors of their own shape
			continue
		}
		if resp, got := b.post(path, `{"model":"nobody"}`); resp.StatusCode != 404 || !strings.Contains(got, "model_not_found") && !strings.Contains(got, "not_found_error") {
			t.Errorf("%s: got %s %s", path, resp.Status, got)
		}
	}
	if known, found := api.NamedPath("/v1/chat/completions/render"); !found || known.Model != api.ModelInJSON {
		t.Error("the rendering of a chat is not served")
	}
}
