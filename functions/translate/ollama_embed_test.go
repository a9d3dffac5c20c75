package translate

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestOllamaVectors checks the runtime's requests, and the translation of its answers.
func TestOllamaVectors(t *testing.T) {
	const two = `{"data":[{"index":1,"embedding":[3,0.5]},{"index":0,"embedding":"AACAPwAAAEA="}],"usage":{"prompt_tokens":5}}`
	const one = `{"data":[{"index":0,"embedding":"AACAPwAAAEA="}],"usage":{"prompt_tokens":2}}`
	for _, tc := range []struct{ name, path, in, asked, answer, want string }{
		{"two texts", "/api/embed", `{"model":"m:latest","input":["a","b"],"keep_alive":"5m","options":{"num_gpu":1}}`,
			`{"encoding_format":"base64","input":["a","b"],"model":"m","truncate_prompt_tokens":-1,"truncation_side":"right"}`, two,
			`{"model":"m:latest","embeddings":[[1,2],[3,0.5]],"total_duration":0,"load_duration":0,"prompt_eval_count":5}`},
		{"a text that is not cut", "/api/embed", `{"model":"m","input":"a","truncate":false,"dimensions":2}`,
			`{"dimensions":2,"encoding_format":"base64","input":["a"],"model":"m"}`, one,
			`{"model":"m","embeddings":[[1,2]],"total_duration":0,"load_duration":0,"prompt_eval_count":2}`},
		{"the older one", "/api/embeddings", `{"model":"m","prompt":"a"}`,
			`{"encoding_format":"base64","input":["a"],"model":"m","normalize":false}`, one, `{"embedding":[1,2]}`},
		{"no text", "/api/embed", `{"model":"m","input":""}`, ``, `{"data":[]}`, `{"model":"m","embeddings":[],"total_duration":0,"load_duration":0,"prompt_eval_count":0}`},
		{"no texts", "/api/embed", `{"model":"m","input":[]}`, ``, `{"data":[]}`, `{"model":"m","embeddings":[],"total_duration":0,"load_duration":0,"prompt_eval_count":0}`},
		{"no prompt", "/api/embeddings", `{"model":"m"}`, ``, `{"data":[]}`, `{"embedding":[]}`},
		{"a description", "/api/show", `{"name":"m:latest","system":"","template":"","verbose":false,"options":null}`, `{"model":"m","system":"","verbose":false}`, `{"details":{"format":"gguf"}}`, `{"details":{"format":"gguf"}}`},
		{"a description for the command line", "/api/show", `{"model":"","name":"m"}`, `{"model":"m"}`, `{}`, `{}`},
		{"too few", "/api/embed", `{"model":"m","input":["a","b"]}`, `-`, one, `502 {"error":"the runtime answered with something that is no list of embeddings for the input"}`},
		{"one twice", "/api/embed", `{"model":"m","input":["a","b"]}`, `-`, strings.Replace(two, "1", "0", 1), `502 {"error":"the runtime answered with something that is no list of embeddings for the input"}`},
		{"half a number", "/api/embed", `{"model":"m","input":"a"}`, `-`, strings.Replace(one, "AACAPwAAAEA=", "AACAPwAA", 1), `502 {"error":"the runtime answered with something that is no list of embeddings for the input"}`},
		{"no number", "/api/embed", `{"model":"m","input":"a"}`, `-`, strings.Replace(one, "AACAPwAAAEA=", "AADAfwAAAEA=", 1), `502 {"error":"the runtime answered with something that is no list of embeddings for the input"}`},
		{"no vector", "/api/embed", `{"model":"m","input":"a"}`, `-`, `{"data":[{"index":0,"embedding":null}]}`, `502 {"error":"the runtime answered with something that is no list of embeddings for the input"}`},
		{"no description", "/api/show", `{"model":"m"}`, `-`, `{`, `502 {"error":"the runtime answered with something that is no description of a model"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to := map[string]string{"/api/embed": "/v1/embeddings", "/api/embeddings": "/v1/embeddings", "/api/show": "/api/show"}[tc.path]
			w := asks(tc.path, tc.in, func(w http.ResponseWriter, r *http.Request) {
				asked, _ := io.ReadAll(r.Body)
				if tc.asked != "-" && string(asked) != tc.asked || tc.asked != "" && r.URL.Path != to || tc.asked == "" && (r.Method != http.MethodGet || r.URL.Path != "/v1/models") {
					t.Errorf("asked %s %s %s, want %s", r.Method, r.URL.Path, asked, tc.asked)
				}
				_, _ = io.WriteString(w, tc.answer)
			})
			got := strings.TrimSpace(lasted.ReplaceAllString(w.Body.String(), `_duration":0`))
			if w.Code != http.StatusOK {
				got = strings.Join([]string{"502", got}, " ")
			}
			if got != tc.want {
				t.Errorf("got %d %s, want %s", w.Code, got, tc.want)
			}
		})
	}
}

// TestRefusedOllamaVectors checks that unsupported fields are refused, and that the runtime's refusals get Ollama's
// shape.
func TestRefusedOllamaVectors(t *testing.T) {
	for _, tc := range []struct{ path, body, says string }{
		{"/api/embed", `{"model":"m","input":7}`, "input: it has the wrong type"},
		{"/api/embed", `{"model":"m","input":["a",7]}`, "input: it has the wrong type"},
		{"/api/embed", `{"model":"m","input":"a","truncate":"no"}`, "truncate: it has the wrong type"},
		{"/api/embed", `{"model":"m","input":"a","dimensions":"2"}`, "dimensions: it has the wrong type"},
		{"/api/embeddings", `{"model":"m","prompt":["a"]}`, "prompt: it has the wrong type"},
		{"/api/show", `{}`, "model is required"},
		{"/api/show", `{"model":"m","system":"be brief"}`, "system can't be kept"},
	} {
		_, _, err := tagging.translate(tc.path, []byte(tc.body))
		if err == nil || api.AsError(err).Status != 400 || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s %s: got %v, want %q", tc.path, tc.body, err, tc.says)
		}
	}
	w := asks("/api/embed", `{"model":"m","input":"a"}`, func(w http.ResponseWriter, _ *http.Request) {
		api.WriteError(w, api.BadRequest("dimensions", "too many"))
	})
	if w.Code != 400 || w.Body.String() != "{\"error\":\"too many\"}\n" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
