package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// description is the part of Ollama's description of a model that is compared.
type description struct {
	Details      map[string]any
	Info         map[string]any `json:"model_info"`
	Tensors      []tensorShape
	Capabilities []string
}

type tensorShape struct {
	Name, Type string
	Shape      []int
}

// testOllamaAlike asks Ollama and the engine about the same file, and for vectors of the same texts.
func testOllamaAlike(ctx context.Context, t *testing.T, p *place) {
	engine := newServer(t, "--model", "pico")
	var theirs, ours description
	for at, d := range map[*place]*description{p: &theirs, engine: &ours} {
		at.nativeInto(ctx, t, "/api/show", `{"model":"pico"}`, d)
		slices.SortFunc(d.Tensors, func(a, b tensorShape) int { return strings.Compare(a.Name, b.Name) })
		delete(d.Details, "parent_model") // Ollama has made its model of the file, and says so
	}
	if diff := cmp.Diff(theirs, ours); diff != "" || len(ours.Tensors) == 0 || len(ours.Info) == 0 {
		t.Errorf("what is told of pico's file (-Ollama +engine):\n%s", diff)
	}
	var a, b struct {
		Embeddings [][]float64
		Tokens     int `json:"prompt_eval_count"`
	}
	const texts = `{"model":"pico","input":["echo red","reverse alpha beta"]}`
	p.nativeInto(ctx, t, "/api/embed", texts, &a)
	engine.nativeInto(ctx, t, "/api/embed", texts, &b)
	if len(a.Embeddings) != 2 || len(b.Embeddings) != 2 || a.Tokens != b.Tokens {
		t.Fatalf("%d and %d vectors of %d and %d tokens", len(a.Embeddings), len(b.Embeddings), a.Tokens, b.Tokens)
	}
	for i := range a.Embeddings {
		if cosine := dot(a.Embeddings[i], b.Embeddings[i]); cosine < 0.999 {
			t.Errorf("text %d: the cosine of Ollama's vector and the engine's is %v", i, cosine)
		}
	}
}

// nativeInto posts to Ollama's own API and reads the answer.
func (p *place) nativeInto(ctx context.Context, t *testing.T, path, body string, into any) {
	t.Helper()
	resp, err := p.native(ctx, path, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s, %v", path, body, resp.Status, raw, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}
