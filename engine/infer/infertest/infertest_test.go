package infertest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/infertest"

	"github.com/rouse-dev/rouse/engine/model"
)

func TestFake(t *testing.T) {
	infertest.Run(t, func(t *testing.T) infer.Inferencer {
		f := &infertest.Fake{Shape: model.Config{Context: 512}, Bytes: 1000}
		t.Cleanup(func() { f.Close() })
		return f
	})
}

// TestFakeBooks checks the errors that a careless caller gets.
func TestFakeBooks(t *testing.T) {
	f := &infertest.Fake{Next: func(seq []int32) int32 { return seq[len(seq)-1] + 1 }}
	item := func(pos int, block int32, tokens ...int32) infer.Item {
		return infer.Item{Tokens: tokens, Pos: pos, Blocks: []int32{block}, Want: infer.Last}
	}
	l := infertest.Forward(t, f, item(0, 4, 10, 11))[0]
	if got := slices.Index(l, slices.Max(l)); got != 12 || l[12] != 10 {
		t.Errorf("next token: got %d with logit %v, want 12 with 10", got, l[got])
	}
	if _, err := f.Forward(t.Context(), &infer.Batch{Items: []infer.Item{item(2, 5, 12)}}); err == nil || !strings.Contains(err.Error(), "position 0 (block 5) was never computed") {
		t.Errorf("wrong block: %v", err)
	}
	if _, err := f.Forward(t.Context(), &infer.Batch{Items: []infer.Item{item(3, 4, 12)}}); err == nil || !strings.Contains(err.Error(), "position 2 (block 4) was never computed") {
		t.Errorf("skipped position: %v", err)
	}
	boom := errors.New("boom")
	f.Before = func(context.Context, *infer.Batch) error { return boom }
	if _, err := f.Forward(t.Context(), &infer.Batch{}); !errors.Is(err, boom) {
		t.Errorf("Before: %v", err)
	}
	if steps := f.Steps(); len(steps) != 4 || !slices.Equal(steps[0].Items[0].Tokens, []int32{10, 11}) {
		t.Errorf("steps: %v", steps)
	}
}

// TestGenerate: each kind of model loads, and the same Spec gives the same bytes.
func TestGenerate(t *testing.T) {
	for name, s := range map[string]infertest.Spec{
		"default": {},
		"qwen2":   {Arch: "qwen2", Type: gguf.Q8_0, KVHeads: 2},
		"spm":     {SPM: true, Vocab: 1000, Untied: true, Type: gguf.F16},
		"qwen3":   {Arch: "qwen3", Type: gguf.Q4_K, HeadDim: 128},
		"experts": {Arch: "qwen3moe", Type: gguf.Q4_0, Experts: 8, ExpertFFN: 32},
		"mixtral": {Experts: 4, Type: gguf.Q6_K, Window: 8},
		"gemma":   {Arch: "gemma", Type: gguf.Q5_K},
		"gemma2":  {Arch: "gemma2", Mix: []gguf.Type{gguf.Q6_K, gguf.Q4_K, gguf.F16}},
		"gemma3":  {Arch: "gemma3", RopeScale: 8},
		"gemma4":  {Arch: "gemma4", LayerInput: 32},
		"oss":     {Arch: "gpt-oss", Type: gguf.MXFP4},
		"glm":     {Arch: "glm4moe", Type: gguf.Q4_0},
		"phi3":    {Arch: "phi3", RopeFactors: true, RopeTrain: 64, RopeMag: 1.2, Type: gguf.Q5_0},
		"yarn":    {Arch: "qwen3", RopeScaling: "yarn", RopeScale: 4, RopeTrain: 64},
		"rope":    {RopeFactors: true, RopeScale: 2, HeadDim: 20, RopeDim: 10, Type: gguf.BF16},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := infertest.Bytes(s)
			if err != nil {
				t.Fatal(err)
			}
			b, err := infertest.Bytes(s)
			if err != nil || !bytes.Equal(a, b) {
				t.Fatalf("another file the second time (%v)", err)
			}
			f, err := gguf.Parse(a)
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			checkVocabulary(t, f, m.Config.Vocab)
			s.Seed = 1
			if c, err := infertest.Bytes(s); err != nil || bytes.Equal(a, c) {
				t.Errorf("another seed, the same file (%v)", err)
			}
		})
	}
}

func checkVocabulary(t *testing.T, f *gguf.File, size int) {
	t.Helper()
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	types, _ := f.Ints("tokenizer.ggml.token_type")
	if len(tokens) != size || len(types) != size {
		t.Fatalf("%d tokens and %d types for a vocabulary of %d", len(tokens), len(types), size)
	}
	index := map[string]int{}
	for i, tok := range tokens {
		if j, twice := index[tok]; twice {
			t.Errorf("tokens %d and %d are both %q", j, i, tok)
		}
		index[tok] = i
	}
	merges, bpe := f.Strings("tokenizer.ggml.merges")
	if bpe && len(merges) < 100 {
		t.Errorf("%d merges", len(merges))
	}
	for _, m := range merges {
		left, right, ok := strings.Cut(m, " ")
		for _, part := range []string{left, right, left + right} {
			if _, known := index[part]; !ok || !known {
				t.Errorf("merge %q: token %q is missing", m, part)
			}
		}
	}
	scores, spm := f.Floats("tokenizer.ggml.scores")
	if bpe == spm || spm && len(scores) != size {
		t.Errorf("merges %v, scores %v of %d", bpe, spm, len(scores))
	}
	for _, key := range []string{"bos", "eos"} {
		if id, ok := f.Uint("tokenizer.ggml." + key + "_token_id"); !ok || types[id] != 3 {
			t.Errorf("%s is %d, no control token", key, id)
		}
	}
}

func TestSpecErrors(t *testing.T) {
	for want, s := range map[string]infertest.Spec{
		"Arch is":                 {Arch: "gpt2"},
		"Layers is -1":            {Layers: -1},
		"multiple of KVHeads":     {Heads: 4, KVHeads: 3},
		"RopeDim is 7":            {RopeDim: 7},
		"type IQ2_XXS cannot":     {Type: 16},
		"multiples of 32":         {Type: gguf.Q8_0, FFN: 100},
		"multiples of 256":        {Type: gguf.Q4_K, Dim: 128},
		"ExpertsUsed is 5 of 4":   {Arch: "qwen3moe", ExpertsUsed: 5},
		"gemma has no experts":    {Arch: "gemma", Experts: 4},
		"at least 260":            {Vocab: 100},
		"vocabulary needs at lea": {Vocab: 300, SPM: true},
		"Heads is -4":             {Heads: -4},
	} {
		if err := infertest.Write(io.Discard, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
