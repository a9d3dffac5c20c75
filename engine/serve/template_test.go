package serve_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// ask posts a conversation to a server whose model has a template.
func ask(t *testing.T, ctx context.Context, path, source string) *httptest.ResponseRecorder {
	t.Helper()
	p := newParrot(t)
	e, err := infertest.Engine(p, p.tok, engine.Config{Seats: 4})
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.New(source, "", "")
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(`{"messages": [{"role": "user", "content": "hi"}]}`))
	serve.NewServer(e, template, serve.Config{Model: "parrot.gguf"}).ServeHTTP(w, r)
	return w
}

// TestTemplateFaults checks that a fault of a template is a clear answer, in little time: none by the bubble's clock, so
// that no slow machine reaches the time limit first.
func TestTemplateFaults(t *testing.T) {
	for _, test := range []struct {
		source, want string
		status       int
	}{
		{"{% for a in range(65536) %}{% for b in range(65536) %}{% endfor %}{% endfor %}", "the model's chat template exceeds its budget with this conversation: line 1: more than 5,000,000 steps", 422},
		{"{{ messages[0].content * 600000000 }}", "more than 536,870,912 bytes of values", 422},
		{"{{ '%d' % messages[0].content }}", "line 1: %d format: a number is required, not str", 400},
		{"{{ raise_exception('no users') }}", "refuses this conversation: no users", 400},
	} {
		for _, path := range []string{"/v1/chat/completions", "/tokenize"} {
			synctest.Test(t, func(t *testing.T) {
				w := ask(t, t.Context(), path, test.source)
				if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
					t.Errorf("%s at %s: got %d %s, want %d with %q", test.source, path, w.Code, w.Body, test.status, test.want)
				}
			})
		}
	}
}

// TestTemplateClientLeft checks that a template stops when its client leaves, and that no answer is written.
func TestTemplateClientLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := ask(t, ctx, "/tokenize", "{% for a in range(65536) %}{% for b in range(65536) %}{% endfor %}{% endfor %}")
	if w.Body.Len() != 0 {
		t.Errorf("got %d %s, want nothing", w.Code, w.Body)
	}
}

// TestNoTemplate checks that a model without a template, to which the marks of the usual one are text, ends its turn at them.
func TestNoTemplate(t *testing.T) {
	p := newParrot(t)
	tok, err := tokenizer.FromGGUF(infertest.Open(t, infertest.Spec{Arch: "phi3"}))
	if err != nil {
		t.Fatal(err)
	}
	p.tok, p.Shape.Vocab = tok, tok.Size()
	text := tok.Encode("fine<|im_end|>\n<|im_start|>user\n", false)
	p.Next = func(sequence []int32) int32 {
		said := len(text)
		for said > 0 && !slices.Equal(sequence[max(0, len(sequence)-said):], text[:said]) {
			said--
		}
		return text[said%len(text)]
	}
	c := startModel(t, serve.Config{}, p, "")
	for field, want := range map[string]string{
		"":                   `fine","refusal":null},"logprobs":null,"finish_reason":"stop"`,
		`,"ignore_eos":true`: `fine<|im_end|>`,
		`,"stop":["?"` + strings.Repeat(`,"?"`, 63) + `]`: `fine","refusal":null},"logprobs":null,"finish_reason":"stop"`,
	} {
		if _, raw := c.do("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":60,"temperature":0`+field+`}`); !strings.Contains(raw, want) {
			t.Errorf("with %q: got %s, want %s", field, raw, want)
		}
	}
}
