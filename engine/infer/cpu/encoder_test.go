package cpu_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/lora"
)

const encoders = "../../testdata/encoders/"

// encoded is one entry of golden.json, which engine/golden/encoders.py writes.
type encoded struct {
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
	if err != nil || len(all) != 3 {
		t.Fatalf("%d models, %v: want 3", len(all), err)
	}
	return all
}

// TestEncoders compares vectors and scores with those of Hugging Face's transformers: alone, beside others in one batch, and
// with several threads, where all bits are the same.
func TestEncoders(t *testing.T) {
	for name, runs := range encoderGoldens(t) {
		t.Run(name, func(t *testing.T) {
			want := infer.Hidden
			if name == "rank" {
				want = infer.Rank
			}
			one, many := open(t, encoders+name+".gguf", cpu.Config{Threads: 1}), open(t, encoders+name+".gguf", cpu.Config{Threads: 3})
			var batch infer.Batch
			var alone [][]float32
			at := 0
			for _, run := range runs {
				n := (len(run.IDs) + 15) / 16
				it := infer.Item{Tokens: run.IDs, Blocks: blocks(at, n), Want: want}
				at += n
				batch.Items = append(batch.Items, it)
				got := step(t, one, infer.Batch{Items: []infer.Item{it}}).Hidden[0]
				alone = append(alone, slices.Clone(got))
				if name == "rank" {
					if len(got) != 1 || math.Abs(float64(got[0])-run.Score) > 2e-3 {
						t.Errorf("%d tokens: score %v, want %v", len(run.IDs), got, run.Score)
					}
					continue
				}
				c := cosine(pooled(got, len(run.Vector), name == "bert"), run.Vector)
				if !(c >= 0.99999) {
					t.Errorf("%d tokens: cosine %v, want at least 0.99999", len(run.IDs), c)
				}
				t.Logf("%d tokens: cosine %.8f", len(run.IDs), c)
			}
			for i, got := range step(t, many, batch).Hidden {
				if !slices.Equal(got, alone[i]) {
					t.Errorf("run %d: other bits beside the others", i)
				}
			}
		})
	}
}

func pooled(hidden []float32, dim int, first bool) []float32 {
	out := make([]float32, dim)
	for i, x := range hidden {
		if i < dim || !first {
			out[i%dim] += x
		}
	}
	return out
}

func step(t *testing.T, r infer.Inferencer, b infer.Batch) infer.Result {
	t.Helper()
	out, err := r.Forward(t.Context(), &b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEncoderRefuses(t *testing.T) {
	bert, rank := open(t, encoders+"bert.gguf", cpu.Config{}), open(t, encoders+"rank.gguf", cpu.Config{})
	for _, tt := range []struct {
		r    infer.Inferencer
		item infer.Item
		want string
	}{
		{bert, infer.Item{Want: infer.Last}, "is not what the model makes"},
		{bert, infer.Item{Want: infer.All}, "is not what the model makes"},
		{bert, infer.Item{Want: infer.Rank}, "is not what the model makes"},
		{rank, infer.Item{Want: infer.Hidden}, "is not what the model makes"},
		{bert, infer.Item{Want: infer.Hidden, Pos: 3}, "as a whole"},
	} {
		tt.item.Tokens, tt.item.Blocks = []int32{2}, []int32{0}
		if _, err := tt.r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{tt.item}}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("want %d at %d: got %v, want %q", tt.item.Want, tt.item.Pos, err, tt.want)
		}
	}
	if err := bert.LoadAdapter(1, &lora.Adapter{Rank: 1, Layers: make([][lora.NumTargets]*lora.Pair, 2)}); err == nil || !strings.Contains(err.Error(), "no adapters") {
		t.Errorf("an adapter: got %v", err)
	}
	if _, err := cpu.Open(encoders+"bert.gguf", cpu.Config{Shard: cpu.Shard{Of: 2, Memory: os.Stdin}}); err == nil || !strings.Contains(err.Error(), "leave out --shards") {
		t.Errorf("two ranks: got %v", err)
	}
}
