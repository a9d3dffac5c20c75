package cpu_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
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
)

// golden is a file of engine/golden/llama.py.
type golden struct {
	MadeWith, SHA256 string
	Runs             []struct {
		Prompt string
		IDs    []int32
		Logits string
		Greedy []int32
		Ties   []struct{ Step int }
	}
}

// TestGolden compares with llama.cpp: every architecture in the common types, and the shipped model. With -short
// it tests only F32 and Q4_K.
func TestGolden(t *testing.T) {
	all, err := infertest.Goldens()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		t.Run(g.Name, func(t *testing.T) {
			if testing.Short() && g.Spec.Type != gguf.F32 && g.Spec.Type != gguf.Q4_K {
				t.Skip("-short")
			}
			checkGenerated(t, g)
		})
	}
	t.Run("pico", func(t *testing.T) { checkGolden(t, "../../pico/pico-q8_0.gguf", "../../testdata/golden/pico.json") })
}

func checkGenerated(t *testing.T, g infertest.Golden) {
	t.Helper()
	path := infertest.File(t, g.Spec)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != g.SHA256 || len(g.Runs) != 3 {
		t.Fatalf("%d answers for the model %s, and the model is %s: make them again with engine/golden", len(g.Runs), g.SHA256, sum)
	}
	r := open(t, path, cpu.Config{})
	for _, run := range g.Runs {
		var got [][]float32
		item := infer.Item{Tokens: run.IDs, Want: infer.Last}
		for _, next := range run.Greedy {
			item.Blocks = blocks(0, (item.Pos+len(item.Tokens))/16+1)
			got = append(got, slices.Clone(forward(t, r, item)[0]))
			item.Pos += len(item.Tokens)
			item.Tokens = []int32{next}
		}
		c, err := g.Check(&run, got)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%d tokens: cosine %.6f", len(run.IDs), c)
	}
}

func checkGolden(t *testing.T, model, answers string) {
	t.Helper()
	var g golden
	data, err := os.ReadFile(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(model); err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != g.SHA256 || len(g.Runs) < 10 {
		t.Fatalf("%s holds %d runs of the model %s, and the model is %s: make it again", answers, len(g.Runs), g.SHA256, sum)
	}
	r := open(t, model, cpu.Config{})
	same, least := 0, 1.0
	for _, run := range g.Runs {
		got := forward(t, r, infer.Item{Tokens: run.IDs, Blocks: blocks(0, len(run.IDs)/16+1), Want: infer.Last})[0]
		c := cosine(got, decode(t, run.Logits))
		least = min(least, c)
		if !(c >= 0.999) {
			t.Errorf("%q: cosine %v, want at least 0.999", run.Prompt, c)
		}
		tie := len(run.Greedy)
		for _, x := range run.Ties {
			tie = min(tie, x.Step)
		}
		same += follow(t, r, run.IDs, run.Greedy, tie, got)
	}
	t.Logf("smallest cosine %v; %d of %d continuations are equal", least, same, len(g.Runs))
}

// follow continues a prompt greedily. Another token is an error before step tie, the first one
// whose two best tokens are so close that rounding decides. It returns 1 if all tokens are equal.
func follow(t *testing.T, r infer.Inferencer, ids, want []int32, tie int, logits []float32) int {
	t.Helper()
	pos := len(ids)
	for i, w := range want {
		best := int32(0)
		for id, l := range logits {
			if l > logits[best] {
				best = int32(id)
			}
		}
		if best != w {
			if i < tie {
				t.Errorf("after %v, token %d: got %d, want %d (logits %v, %v)", ids, i, best, w, logits[best], logits[w])
			}
			return 0
		}
		logits = forward(t, r, infer.Item{Tokens: []int32{w}, Pos: pos, Blocks: blocks(0, pos/16+1), Want: infer.Last})[0]
		pos++
	}
	return 1
}

func decode(t *testing.T, s string) []float64 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(raw)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return out
}
