package cpu_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// TestNamed compares a public model, Gemma 3 270M in Q4_K_M, with llama.cpp: tokens, the best logits after prompts,
// greedy continuations and perplexity.
func TestNamed(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "rouse", "models", "gemma-3-270m-q4_k_m.gguf")
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("%s is not there: make models fetches it", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		SHA256 string
		Runs   []struct {
			Prompt      string
			IDs, Greedy []int32
			NLL         float64
			Best        []struct {
				ID    int32
				Logit float64
			}
		}
	}
	answers, err := os.ReadFile("../../testdata/golden/gemma.json")
	if err == nil {
		err = json.Unmarshal(answers, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != g.SHA256 || len(g.Runs) < 8 {
		t.Fatalf("%d answers of the model %s, and the model is %s: make them again (engine/golden/README.md)", len(g.Runs), g.SHA256, sum)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, path, cpu.Config{})
	others, tokens, ours, theirs, least := 0, 0, 0.0, 0.0, 1.0
	for _, run := range g.Runs {
		if ids := tok.Encode("<bos>"+run.Prompt, true); !slices.Equal(ids, run.IDs) {
			t.Errorf("%q: ids %v, want %v", run.Prompt, ids, run.IDs)
			continue
		}
		all := forward(t, r, infer.Item{Tokens: run.IDs, Blocks: blocks(0, len(run.IDs)/16+1), Want: infer.All})[0]
		row := func(i int) []float32 { return all[i*len(all)/len(run.IDs) : (i+1)*len(all)/len(run.IDs)] }
		nll := 0.0
		for i, next := range run.IDs[1:] {
			z, logits := 0.0, row(i)
			for _, l := range logits {
				z += math.Exp(float64(l - logits[next]))
			}
			nll += math.Log(z)
		}
		ours, theirs, tokens = ours+nll, theirs+run.NLL, tokens+len(run.IDs)-1
		last := row(len(run.IDs) - 1)
		var got []float32
		var want []float64
		for _, b := range run.Best {
			got, want = append(got, last[b.ID]), append(want, b.Logit)
		}
		c := cosine(got, want)
		least = min(least, c)
		if !(c >= 0.999) {
			t.Errorf("%q: cosine of the best logits %v, want at least 0.999", run.Prompt, c)
		}
		for i, want := range run.Greedy {
			best := slices.Max(last)
			if gap := best - last[want]; gap > 0.25 { // both round the inputs of products to 8 bits
				t.Errorf("%q: token %d of the continuation is %d, %v below the best", run.Prompt, i, want, gap)
			} else if gap > 0 {
				others++
			}
			pos := len(run.IDs) + i
			last = forward(t, r, infer.Item{Tokens: []int32{want}, Pos: pos, Blocks: blocks(0, pos/16+1), Want: infer.Last})[0]
		}
	}
	a, b := math.Exp(ours/float64(tokens)), math.Exp(theirs/float64(tokens))
	if !(math.Abs(a/b-1) <= 0.03) {
		t.Errorf("perplexity of %d tokens %.4f, llama.cpp's is %.4f", tokens, a, b)
	}
	t.Logf("smallest cosine %v; at %d steps another token is best; perplexity %.4f, llama.cpp's %.4f", least, others, a, b)
}
