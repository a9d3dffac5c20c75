package activator

import (
	"strings"
	"testing"
)

// TestErrorsOfMessages: errors at Anthropic's paths have Anthropic's format, whatever their origin.
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

// TestPathsThatNameAModel: every path whose body names a model is served at the front door, as at a function's own
// host.
func TestPathsThatNameAModel(t *testing.T) {
	b := startBench(t, nil)
	for _, path := range []string{
		"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
		"/v1/chat/completions/batch", "/v1/chat/completions/render", "/v1/completions/render", "/inference/v1/generate", "/v2/embed",
		"/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/pooling", "/classify", "/tokenize", "/detokenize",
	} {
		if resp, got := b.post(path, `{"model":"nobody"}`); resp.StatusCode != 404 || !strings.Contains(got, "model_not_found") && !strings.Contains(got, "not_found_error") {
			t.Errorf("%s: got %s %s", path, resp.Status, got)
		}
	}
}
