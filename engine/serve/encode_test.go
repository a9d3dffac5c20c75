package serve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/serve"
)

// post sends a text to a server whose model has a context of 256 tokens.
func post(t *testing.T, ctx context.Context, path string, fields map[string]any) *httptest.ResponseRecorder {
	t.Helper()
	p := newParrot(t)
	e, err := infertest.Engine(p, p.tok, engine.Config{Seats: 4})
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.New("", "", "")
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(string(body)))
	serve.NewServer(e, template, serve.Config{Model: "parrot.gguf"}).ServeHTTP(w, r)
	return w
}

// TestLongPrompts checks that the refusal of a text that is too long says its length, and that one that is far too long is refused by
// its size, before it is encoded.
func TestLongPrompts(t *testing.T) {
	text, huge := strings.Repeat("a b ", 1<<18), strings.Repeat("a", 17<<20)
	for _, test := range []struct {
		path, want, param string
		fields            map[string]any
	}{
		{"/v1/completions", "the text has at least 80659 tokens. This model's maximum context length is 256 tokens: shorten it", "prompt", map[string]any{"prompt": text}},
		{"/v1/chat/completions", "tokens. This model's maximum context length is 256 tokens: shorten it", "messages", map[string]any{"messages": []any{map[string]any{"role": "user", "content": text}}}},
		{"/v1/completions", "the prompt has 6145 tokens. This model's maximum context length is 256 tokens", "prompt", map[string]any{"prompt": text[:12<<10]}},
		{"/v1/embeddings", "tokens. This model's maximum context length is 256 tokens: shorten it", "input", map[string]any{"input": text}},
		{"/v1/completions", "the text has at least 1371214 tokens", "prompt", map[string]any{"prompt": huge}},
		{"/v1/embeddings", "the text has 17825792 bytes, of which at most 16777216 are encoded", "input", map[string]any{"input": huge, "truncate_prompt_tokens": 5}},
		{"/v1/embeddings", "at least 645277 tokens", "input", map[string]any{"input": huge[:8<<20]}},
		{"/v1/completions", "at least 645277 tokens", "prompt", map[string]any{"prompt": huge[:8<<20], "n": 128}},
		{"/tokenize", "17825792 bytes", "prompt", map[string]any{"prompt": huge}},
		{"/tokenize", "17825792 bytes", "prompt", map[string]any{"prompt": huge, "add_special_tokens": false}},
	} {
		w := post(t, t.Context(), test.path, test.fields)
		var body struct {
			Error struct{ Message, Param, Code string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %d %.300s: %v", test.path, w.Code, w.Body, err)
		}
		if w.Code != http.StatusBadRequest || !strings.Contains(body.Error.Message, test.want) || body.Error.Param != test.param || body.Error.Code != "context_length_exceeded" {
			t.Errorf("%s: got %d %.300s, want 400 with %q about %s", test.path, w.Code, w.Body, test.want, test.param)
		}
	}
}

// TestTokenizeCounts checks that a conversation that is longer than the context is counted.
func TestTokenizeCounts(t *testing.T) {
	text := strings.Repeat("a b ", 6<<10)
	w := post(t, t.Context(), "/tokenize", map[string]any{"messages": []any{map[string]any{"role": "user", "content": text}}})
	var body struct{ Count int }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK || body.Count < 12<<10 {
		t.Errorf("got %d %.200s, want 200 with at least %d tokens", w.Code, w.Body, 12<<10)
	}
}

// TestTokenizeClientLeft checks that the text of a client that left is not encoded.
func TestTokenizeClientLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w := post(t, ctx, "/tokenize", map[string]any{"prompt": strings.Repeat("a", 1<<20)}); w.Body.Len() != 0 {
		t.Errorf("got %d %.200s, want nothing", w.Code, w.Body)
	}
}
