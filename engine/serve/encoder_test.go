package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

const encoders = "../testdata/encoders/"

// encoded is one entry of golden.json, which engine/golden/encoders.py writes.
type encoded struct {
	Texts  []string
	IDs    []int32
	Vector []float64
	Score  float64
}

func encoderGoldens(t *testing.T) (all map[string][]encoded) {
	t.Helper()
	data, err := os.ReadFile(encoders + "golden.json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ask sends a request and decodes the answer.
func (s *running) ask(t *testing.T, path string, body, answer any) (status int, raw string) {
	t.Helper()
	in, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.http.Post("http://engine"+path, "application/json", strings.NewReader(string(in)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK && answer != nil {
		if err := json.Unmarshal(data, answer); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	}
	return resp.StatusCode, string(data)
}

type vectorsAnswer struct {
	Data  []struct{ Embedding []float64 }
	Usage struct {
		Tokens int `json:"prompt_tokens"`
	}
}

// TestEmbeddingModels checks vectors from texts with Hugging Face's, beside one another and after a sleep, and what such a
// model refuses.
func TestEmbeddingModels(t *testing.T) {
	for _, name := range []string{"bert", "nomic-bert"} {
		t.Run(name, func(t *testing.T) {
			runs := encoderGoldens(t)[name]
			s := run(t, serve.Config{Model: encoders + name + ".gguf", Budget: 48}) // prompts are scheduled in pieces
			var texts []string
			tokens := 0
			for _, r := range runs {
				texts = append(texts, r.Texts[0])
				tokens += len(r.IDs)
			}
			check := func() {
				t.Helper()
				var got vectorsAnswer
				if status, raw := s.ask(t, "/v1/embeddings", map[string]any{"input": texts}, &got); status != 200 || len(got.Data) != len(runs) || got.Usage.Tokens != tokens {
					t.Fatalf("%d %.300s: want %d vectors of %d tokens", status, raw, len(runs), tokens)
				}
				for i, r := range runs {
					if c := cosineOf(got.Data[i].Embedding, r.Vector) / math.Sqrt(cosineOf(r.Vector, r.Vector)); !(c > 0.99999) {
						t.Errorf("%.30q: cosine %v", r.Texts[0], c)
					}
				}
			}
			check()
			for _, level := range []string{"1", "2"} {
				s.post(t, "/sleep?level="+level)
				s.post(t, "/wake_up")
				check()
			}
			var cut, whole vectorsAnswer
			long := strings.Repeat("dog ", 400)
			if status, raw := s.ask(t, "/v1/embeddings", map[string]any{"input": long}, nil); status != 400 || !strings.Contains(raw, "402 tokens. This model's maximum context length is 320") {
				t.Errorf("a text that is too long: %d %s", status, raw)
			}
			s.ask(t, "/v1/embeddings", map[string]any{"input": long, "truncate_prompt_tokens": -1}, &cut)
			s.ask(t, "/v1/embeddings", map[string]any{"input": strings.Repeat("dog ", 318), "dimensions": 32}, &whole)
			if len(cut.Data) != 1 || len(whole.Data) != 1 || fmt.Sprint(cut.Data) != fmt.Sprint(whole.Data) {
				t.Error("a text that is cut has another vector than its beginning")
			}
			var few vectorsAnswer
			if s.ask(t, "/v1/embeddings", map[string]any{"input": "x", "dimensions": 5}, &few); len(few.Data) != 1 || len(few.Data[0].Embedding) != 5 {
				t.Errorf("5 dimensions: got %v", few)
			}
			for path, body := range map[string]map[string]any{
				"/v1/chat/completions": {"messages": []map[string]string{{"role": "user", "content": "x"}}},
				"/v1/completions":      {"prompt": "x", "stream": true},
			} {
				if status, raw := s.ask(t, path, body, nil); status != 400 || !strings.Contains(raw, "the model makes embeddings and does not support texts") {
					t.Errorf("%s: %d %s", path, status, raw)
				}
			}
			var about struct{ Capabilities []string }
			if s.ask(t, "/api/show", map[string]any{}, &about); fmt.Sprint(about.Capabilities) != "[embedding]" {
				t.Errorf("capabilities %q", about.Capabilities)
			}
			if status, raw := s.ask(t, "/v1/score", map[string]any{"text_1": "x", "text_2": []string{"x", "dog"}}, nil); status != 200 || !strings.Contains(raw, `"index":1,"object":"score"`) {
				t.Errorf("the likeness of vectors: %d %s", status, raw)
			}
		})
	}
}

// TestReranker checks scores of pairs with Hugging Face's.
func TestReranker(t *testing.T) {
	runs := encoderGoldens(t)["rank"]
	s := run(t, serve.Config{Model: encoders + "rank.gguf"})
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	var one, two []string
	for _, r := range runs {
		one, two = append(one, r.Texts[0]), append(two, r.Texts[1])
	}
	var scored struct{ Data []struct{ Score float64 } }
	if status, raw := s.ask(t, "/v1/score", map[string]any{"text_1": one, "text_2": two}, &scored); len(scored.Data) != len(runs) {
		t.Fatalf("%d %s", status, raw)
	}
	for i, r := range runs {
		if got, want := scored.Data[i].Score, sigmoid(r.Score); math.Abs(got-want) > 1e-3 {
			t.Errorf("%.60q: score %v, want %v", r.Texts, got, want)
		}
	}
	var ranked struct {
		Results []struct {
			Index int
			Score float64 `json:"relevance_score"`
		}
		Usage struct {
			Tokens int `json:"prompt_tokens"`
		}
	}
	status, raw := s.ask(t, "/v1/rerank", map[string]any{"query": one[0], "documents": two[:2]}, &ranked)
	if len(ranked.Results) != 2 || ranked.Results[0].Index != 1 || ranked.Usage.Tokens != len(runs[0].IDs)+len(runs[1].IDs) {
		t.Fatalf("%d %s", status, raw)
	}
	for _, r := range ranked.Results {
		if math.Abs(r.Score-sigmoid(runs[r.Index].Score)) > 1e-3 {
			t.Errorf("document %d: score %v", r.Index, r.Score)
		}
	}
	s.post(t, "/sleep?level=2")
	s.post(t, "/wake_up")

	long := strings.Repeat("dog ", 400)
	var cut, whole struct{ Data []struct{ Score float64 } }
	s.ask(t, "/v1/score", map[string]any{"text_1": "a cat", "text_2": long, "truncate_prompt_tokens": 40}, &cut)
	s.ask(t, "/v1/score", map[string]any{"text_1": "a cat", "text_2": strings.Repeat("dog ", 35)}, &whole)
	if len(cut.Data) != 1 || len(whole.Data) != 1 || cut.Data[0] != whole.Data[0] {
		t.Errorf("a document that is cut: %v, want %v", cut, whole)
	}
	for _, tt := range []struct {
		path string
		body map[string]any
		want string
	}{
		{"/v1/rerank", map[string]any{"query": "x", "documents": []string{long}}, "404 tokens"},
		{"/v1/rerank", map[string]any{"query": long, "documents": []string{"x"}, "truncate_prompt_tokens": 40}, "404 tokens"},
		{"/v1/rerank", map[string]any{"query": "x", "documents": []string{"x"}, "pooling": "mean"}, "leave it out, the model itself"},
		{"/v1/embeddings", map[string]any{"input": "x"}, "does not support texts and embeddings"},
		{"/v1/completions", map[string]any{"prompt": "x"}, "does not support texts and embeddings"},
	} {
		if status, raw := s.ask(t, tt.path, tt.body, nil); status != 400 || !strings.Contains(raw, tt.want) {
			t.Errorf("%s: %d %s, want %q", tt.path, status, raw, tt.want)
		}
	}
	var show struct{ Capabilities []string }
	if s.ask(t, "/api/show", map[string]any{}, &show); fmt.Sprint(show.Capabilities) != "[rerank]" {
		t.Errorf("capabilities %q", show.Capabilities)
	}
}

// TestRerankerOfAnotherKind checks that a reranker whose pairs have another form is refused: its scores would be wrong.
func TestRerankerOfAnotherKind(t *testing.T) {
	data, err := os.ReadFile(encoders + "rank.gguf")
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("tokenizer.ggml.model")
	at := bytes.Index(data, key) + len(key) + 4 + 8 // behind its type and length
	if string(data[at:at+4]) != "bert" {
		t.Fatalf("the file has %q there", data[at:at+4])
	}
	copy(data[at:], "gpt2")
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Check(path); err == nil || !strings.Contains(err.Error(), `the reranker has a vocabulary of the kind "gpt2"`) {
		t.Errorf("got %v", err)
	}
}
