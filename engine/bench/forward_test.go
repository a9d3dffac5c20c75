package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// TestStateful measures a model whose sequences have states of their own.
func TestStateful(t *testing.T) {
	r, _, err := load(Config{Path: infertest.File(t, infertest.Spec{Arch: "qwen35"}), Threads: 1, Prompt: 8, Gen: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	of := test{n: 3, prompt: 5, gen: 2}
	if _, err := of.run(t.Context(), r, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Error(err)
	}
}
