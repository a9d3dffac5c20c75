package corpus_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/pico/corpus"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// TestPerplexity checks that the engine's forward pass predicts held-out chats as well as the
// reference in double precision and llama.cpp (engine/golden), within 1 %.
func TestPerplexity(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/golden/pico-perplexity.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		SHA256     string
		Perplexity float64
		Documents  []struct {
			IDs []int32
			NLL float64
		}
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(pico.GGUF())); sum != g.SHA256 {
		t.Fatalf("the answers are for the model %s, and the model is %s: make them again with engine/golden", g.SHA256, sum)
	}
	docs := heldOut(t)
	if len(docs) != len(g.Documents) {
		t.Fatalf("%d documents, want %d", len(docs), len(g.Documents))
	}
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := cpu.New(f, cpu.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	var engine, reference float64
	tokens := 0
	for i, ids := range docs {
		want := g.Documents[i]
		if !slices.Equal(ids, want.IDs) {
			t.Fatalf("document %d is not the one that llama.cpp read", i)
		}
		tokens += len(ids) - 1
		n := nll(forward(t, runner, ids), ids)
		if math.Abs(n-want.NLL) > 0.05+0.02*want.NLL {
			t.Errorf("document %d: -ln p is %v, llama.cpp has %v", i, n, want.NLL)
		}
		engine += n
		if i%5 == 0 { // it is slow
			r := nll(infertest.Reference(m, ids), ids)
			reference += r - n
		}
	}
	got, ref := math.Exp(engine/float64(tokens)), math.Exp((engine+5*reference)/float64(tokens))
	t.Logf("perplexity of %d tokens: %.5f, reference %.5f, llama.cpp %.5f", tokens, got, ref, g.Perplexity)
	for who, want := range map[string]float64{"llama.cpp": g.Perplexity, "the reference": ref} {
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("perplexity is %v, and %s has %v", got, who, want)
		}
	}
}

// heldOut returns questions of all skills with their answers.
func heldOut(t *testing.T) [][]int32 {
	t.Helper()
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]int32
	for _, skill := range corpus.Skills {
		for _, q := range corpus.Questions(skill, 2026, 5) {
			docs = append(docs, tok.Encode(corpus.ChatML(q.Messages)+q.Answer+"<|im_end|>", true))
		}
	}
	return docs
}

// forward returns the logits after each token.
func forward(t *testing.T, r infer.Inferencer, ids []int32) [][]float32 {
	t.Helper()
	_, size := r.Blocks()
	item := infer.Item{Tokens: ids, Want: infer.All}
	for b := range (len(ids) + size - 1) / size {
		item.Blocks = append(item.Blocks, int32(b))
	}
	out, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{item}})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(out.Logits[0], r.Config().Vocab))
}

// nll returns the sum of -ln p of ids except the first.
func nll[F float32 | float64](logits [][]F, ids []int32) float64 {
	var sum float64
	for i, next := range ids[1:] {
		var z float64
		for _, l := range logits[i] {
			z += math.Exp(float64(l - logits[i][next]))
		}
		sum += math.Log(z)
	}
	return sum
}
