package infertest_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

// TestGoldenReference compares the reference forward pass with llama.cpp: every architecture in F32, and llama in
// all types. Package cpu compares the real forward pass with all goldens.
func TestGoldenReference(t *testing.T) {
	all, err := infertest.Goldens()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if g.Spec.Type != gguf.F32 && !strings.HasPrefix(g.Name, "llama/") || g.Spec.Arch == "gemma4" {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			checkGolden(t, g)
		})
	}
}

func checkGolden(t *testing.T, g infertest.Golden) {
	t.Helper()
	data, err := infertest.Bytes(g.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != g.SHA256 || len(g.Runs) != 3 {
		t.Fatalf("%d answers for the model %s, and the model is %s: make them again with engine/golden", len(g.Runs), g.SHA256, sum)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range g.Runs {
		ids := append(run.IDs[:len(run.IDs):len(run.IDs)], run.Greedy[:len(run.Greedy)-1]...)
		var got [][]float32
		for _, l := range infertest.Reference(m, ids)[len(run.IDs)-1:] {
			x := make([]float32, len(l))
			for i, v := range l {
				x[i] = float32(v)
			}
			got = append(got, x)
		}
		c, err := g.Check(&run, got)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%d tokens: cosine %.6f, ties %v", len(run.IDs), c, run.Ties)
	}
}
