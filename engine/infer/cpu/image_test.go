package cpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

// seeing returns a prompt with two images, and an item that computes all of it.
func seeing() infer.Item {
	tokens := infertest.Tokens(40, 400, 5)
	return infer.Item{Tokens: tokens, Blocks: blocks(0, 3), Want: infer.All, Images: []infer.Image{
		{At: 3, N: infertest.ImageTokens, Pixels: infertest.Picture(1)},
		{At: 20, N: infertest.ImageTokens, Pixels: infertest.Picture(2)},
	}}
}

// TestImages compares the logits of a prompt with images with the reference: of files in several types, on several threads, cut at each
// place that cuts no image, and beside another sequence. All but the reference have the same bits.
func TestImages(t *testing.T) {
	spec := infertest.Spec{Arch: "gemma3", Images: true}
	for _, name := range []string{"f16", "swapped"} {
		t.Run(name, func(t *testing.T) {
			path, it := infertest.Projector(t, name), seeing()
			var seen []infertest.Seen
			for i, m := range it.Images {
				seen = append(seen, infertest.See(t, name, i+1, m.At))
			}
			m, err := model.Load(infertest.Open(t, spec))
			if err != nil {
				t.Fatal(err)
			}
			want := infertest.Reference(m, it.Tokens, seen...)
			one := open(t, infertest.File(t, spec), cpu.Config{Threads: 1, Projector: path})
			got := slices.Clone(step(t, one, infer.Batch{Items: []infer.Item{it}}).Logits[0])
			vocab := one.Config().Vocab
			for i, w := range want {
				for j, v := range w {
					if g := float64(got[i*vocab+j]); math.Abs(g-v) > 2e-3 || math.IsNaN(g) {
						t.Fatalf("logit %d after token %d: %v, want %v", j, i, g, v)
					}
				}
			}
			many := open(t, infertest.File(t, spec), cpu.Config{Threads: 3, Projector: path})
			for cut := 1; cut < len(it.Tokens); cut++ {
				if it.Whole(cut) != cut {
					continue
				}
				first, second := it, it
				first.Tokens, second.Tokens, second.Pos = it.Tokens[:cut], it.Tokens[cut:], cut
				other := infer.Item{Tokens: infertest.Tokens(30, 400, cut), Blocks: blocks(3, 2), Want: infer.Last}
				part := slices.Clone(step(t, many, infer.Batch{Items: []infer.Item{other, first}}).Logits[1])
				part = append(part, step(t, many, infer.Batch{Items: []infer.Item{second, other}}).Logits[0]...)
				if !slices.Equal(part, got) {
					t.Fatalf("cut at %d: other bits", cut)
				}
			}
			// Within an image the rest of it suffices: what comes before is in the cache.
			rest := it
			rest.Tokens, rest.Pos = it.Tokens[5:], 5
			if !slices.Equal(step(t, many, infer.Batch{Items: []infer.Item{rest}}).Logits[0], got[5*vocab:]) {
				t.Error("from within an image on: other bits")
			}
		})
	}
}

// TestImagesInLongSteps: an image is in one part of a step, wherever it lies and however many tokens a part may have.
func TestImagesInLongSteps(t *testing.T) {
	spec := infertest.Spec{Arch: "gemma3", Images: true, Context: 700}
	r := open(t, infertest.File(t, spec), cpu.Config{Threads: 2, Projector: infertest.Projector(t, "f16")})
	for _, at := range []int{250, 253, 255, 256, 509} {
		it := infer.Item{Tokens: infertest.Tokens(600, 400, at), Blocks: blocks(0, 38), Want: infer.Last, Images: []infer.Image{
			{At: at, N: infertest.ImageTokens, Pixels: infertest.Picture(at)},
		}}
		want := slices.Clone(step(t, r, infer.Batch{Items: []infer.Item{it}}).Logits[0])
		first, second := it, it
		first.Tokens, second.Tokens, second.Pos = it.Tokens[:at], it.Tokens[at:], at
		first.Want = infer.None
		step(t, r, infer.Batch{Items: []infer.Item{first}})
		if got := step(t, r, infer.Batch{Items: []infer.Item{second}}).Logits[0]; !slices.Equal(got, want) {
			t.Errorf("an image at %d: other bits", at)
		}
	}
}

// TestTextBesideProjector: a text has the same bits with and without a projector.
func TestTextBesideProjector(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Arch: "gemma3", Images: true})
	it := seeing()
	it.Images = nil
	with := open(t, path, cpu.Config{Threads: 2, Projector: infertest.Projector(t, "f16")})
	without := open(t, path, cpu.Config{Threads: 2})
	got, want := step(t, with, infer.Batch{Items: []infer.Item{it}}).Logits[0], step(t, without, infer.Batch{Items: []infer.Item{it}}).Logits[0]
	if !slices.Equal(got, want) {
		t.Error("other bits with a projector")
	}
	if a, b := with.MemoryBytes(), without.MemoryBytes(); a <= b {
		t.Errorf("%d bytes with a projector, %d without: its weights are not counted", a, b)
	}
}

// TestImagesOverSleep: the projector sleeps and wakes with its model, and a cancelled step can be run again.
func TestImagesOverSleep(t *testing.T) {
	r := open(t, infertest.File(t, infertest.Spec{Arch: "gemma3", Images: true}), cpu.Config{Threads: 2, Projector: infertest.Projector(t, "f16")})
	it := seeing()
	batch := infer.Batch{Items: []infer.Item{it}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Forward(ended, &batch); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	want := slices.Clone(step(t, r, batch).Logits[0])
	for _, level := range []int{1, 2} {
		if err := r.Sleep(level); err != nil {
			t.Fatal(err)
		}
		if n := r.MemoryBytes(); n != 0 {
			t.Errorf("%d bytes asleep at level %d", n, level)
		}
		if err := r.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(step(t, r, batch).Logits[0], want) {
			t.Errorf("after level %d: other bits", level)
		}
	}
}

func TestImagesRefused(t *testing.T) {
	good := infertest.Projector(t, "f16")
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "mmproj-other.gguf")
	if err := os.WriteFile(other, bytes.Replace(data, []byte("gemma3"), []byte("pixtra"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	gemma, plain := infertest.File(t, infertest.Spec{Arch: "gemma3", Images: true}), infertest.File(t, infertest.Spec{})
	for want, c := range map[string][2]string{
		`the projector gemma3 is for models of the architecture gemma3, and this one is llama`:                    {plain, good},
		`the projector makes embeddings of 64 values, the model has 128`:                                          {infertest.File(t, infertest.Spec{Arch: "gemma3", Dim: 128}), good},
		`clip.projector_type is "pixtra": supported are files of the architecture clip with the projector gemma3`: {gemma, other},
		`an image has 4 tokens: want at most 256, and no more than the window of 3`:                               {infertest.File(t, infertest.Spec{Arch: "gemma3", Window: 3}), good},
	} {
		_, err := cpu.Open(c[0], cpu.Config{Projector: c[1]})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opened: %v\nwant %s", err, want)
		}
	}
	with, without := open(t, gemma, cpu.Config{Projector: infertest.Projector(t, "f16")}), open(t, gemma, cpu.Config{})
	for want, c := range map[string]struct {
		r      *cpu.Runner
		change func(*infer.Item)
	}{
		"the model reads no images": {without, func(*infer.Item) {}},
		"end within an image":       {with, func(it *infer.Item) { it.Tokens = it.Tokens[:22] }},
		"of 3 bytes: want 4 tokens": {with, func(it *infer.Item) { it.Images[1].Pixels = it.Images[1].Pixels[:3] }},
		"after the one before":      {with, func(it *infer.Item) { it.Images[1].At = 5 }},
	} {
		it := seeing()
		c.change(&it)
		if _, err := c.r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{it}}); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("computed: %v, want %s", err, want)
		}
	}
}
