package cpu_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/lora"

	"github.com/rouse-dev/rouse/engine/model"
)

var (
	tokens  = infertest.Tokens
	blocks  = infertest.BlocksFrom
	forward = infertest.Forward
)

func open(t testing.TB, path string, cfg cpu.Config) *cpu.Runner {
	t.Helper()
	r, err := cpu.Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestSuite runs with one to four goroutines in turn, for each kind of weights.
func TestSuite(t *testing.T) {
	for _, s := range []infertest.Spec{
		{Dim: 128, Type: gguf.Q8_0, Heads: 8, KVHeads: 2},
		{Type: gguf.F32, FFN: 300, Arch: "qwen2"},
		{Type: gguf.F16, Untied: true},
	} {
		t.Run(s.Type.String(), func(t *testing.T) {
			s.Context = 400
			path := infertest.File(t, s)
			n := 0
			infertest.Run(t, func(t *testing.T) infer.Inferencer {
				n++
				return open(t, path, cpu.Config{Threads: n%4 + 1})
			})
		})
	}
}

// TestMemory checks the result of MemoryBytes.
func TestMemory(t *testing.T) {
	s := infertest.Spec{Type: gguf.Q8_0, Context: 256}
	r := open(t, infertest.File(t, s), cpu.Config{Context: 200})
	if got := r.Config().Context; got != 200 {
		t.Errorf("context: got %d, want 200", got)
	}
	forward(t, r, infer.Item{Tokens: tokens(100, 400, 1), Blocks: blocks(0, 7), Want: infer.Last})
	small := r.MemoryBytes()
	weights := int64(400*64+2*(4*64*64+3*64*128)) / 32 * 34
	cache := int64(7 * 16 * 2 * 2 * 64 * 2)
	if small < weights+cache || small > weights+cache+1<<20 {
		t.Errorf("got %d bytes for %d of weights and %d of cache", small, weights, cache)
	}
	forward(t, r, infer.Item{Tokens: tokens(100, 400, 1), Blocks: blocks(10, 7), Want: infer.Last})
	if got := r.MemoryBytes() - small; got < cache || got > cache+1<<15 { // and some working memory, of whichever goroutine came first
		t.Errorf("seven more blocks: %d bytes, want %d", got, cache)
	}
}

// TestReference compares logits after each token with the slow reference's, for each
// difference between models.
func TestReference(t *testing.T) {
	for name, s := range references {
		t.Run(name, func(t *testing.T) {
			s.Vocab = 400
			path := infertest.File(t, s)
			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			m, err := model.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			seq := tokens(37, s.Vocab, 5)
			want := infertest.Reference(m, seq)
			r := open(t, path, cpu.Config{Threads: 2})
			least, flips := 0.999995, 0 // the cache holds halves
			if s.Type != gguf.F32 && s.Type != gguf.F16 && s.Type != gguf.BF16 || s.Mix != nil {
				least = 0.999
			}
			if s.Experts > 0 {
				flips = 4 // random routers have near ties, which rounding decides
			}
			got := forward(t, r, infer.Item{Tokens: seq, Blocks: blocks(3, 3), Want: infer.All})[0]
			compare(t, "logits", got, want, least, flips)
			b := &infer.Batch{Items: []infer.Item{{Tokens: seq, Blocks: blocks(7, 3), Want: infer.Hidden}}}
			compare(t, "hidden state", infertest.Step(t, r, b).Hidden[0], infertest.ReferenceHidden(m, seq), least, flips)
		})
	}
}

var references = map[string]infertest.Spec{
	"llama":       {},
	"untied":      {Untied: true, Layers: 3},
	"qwen2":       {Arch: "qwen2", KVHeads: 2},
	"gqa":         {Heads: 8, KVHeads: 2, Dim: 96, HeadDim: 16},
	"one kv head": {Heads: 4, KVHeads: 1, Seed: 3},
	"head dim":    {HeadDim: 24, FFN: 100},
	"rope dim":    {RopeDim: 8, RopeBase: 500},
	"rope scale":  {RopeScale: 4, Arch: "qwen2"},
	"rope freqs":  {RopeFactors: true, RopeBase: 500000},
	"spm":         {SPM: true},
	"window":      {Window: 7},
	"qwen3":       {Arch: "qwen3", HeadDim: 32},
	"qwen35":      {Arch: "qwen35", KVHeads: 2, RopeDim: 8},
	"delta last":  {Arch: "qwen35", Layers: 5, HeadDim: 32},
	"qwen35 q8_0": {Arch: "qwen35", Type: gguf.Q8_0, Dim: 128, Untied: true},
	"qwen3moe":    {Arch: "qwen3moe", Experts: 8, ExpertsUsed: 3, ExpertFFN: 48},
	"mixtral":     {Experts: 4},
	"gemma":       {Arch: "gemma"},
	"gemma2":      {Arch: "gemma2", Window: 9},
	"gemma3":      {Arch: "gemma3", RopeScale: 8},
	"phi3":        {Arch: "phi3", RopeFactors: true, RopeTrain: 64, RopeMag: 1.2},
	"gpt-oss":     {Arch: "gpt-oss", KVHeads: 2, Window: 9, RopeScaling: "yarn", RopeScale: 4, RopeTrain: 64},
	"mxfp4":       {Arch: "gpt-oss", Dim: 128, Type: gguf.MXFP4, Experts: 2},
	"glm4":        {Arch: "glm4", KVHeads: 2, RopeDim: 8},
	"glm4moe":     {Arch: "glm4moe", Layers: 3, Experts: 6, ExpertFFN: 48},
	"yarn":        {Arch: "qwen3", RopeScaling: "yarn", RopeScale: 4, RopeTrain: 64},
	"f16":         {Type: gguf.F16, Arch: "qwen2", HeadDim: 10},
	"bf16":        {Type: gguf.BF16},
	"q8_0":        {Type: gguf.Q8_0, Dim: 128, Untied: true},
	"q8_0 qwen2":  {Type: gguf.Q8_0, Arch: "qwen2", Dim: 128, Heads: 8, KVHeads: 4},
	"q8_0 moe":    {Type: gguf.Q8_0, Arch: "qwen3moe", Dim: 128, Experts: 6},
	"q4_0":        {Type: gguf.Q4_0, Arch: "qwen3", Dim: 128},
	"q5_0":        {Type: gguf.Q5_0, Dim: 128},
	"q4_k":        {Type: gguf.Q4_K, Arch: "gemma"},
	"q5_k":        {Type: gguf.Q5_K},
	"q6_k":        {Type: gguf.Q6_K, Arch: "phi3"},
	"mixed":       {Mix: []gguf.Type{gguf.Q6_K, gguf.Q4_K, gguf.F16, gguf.Q8_0}, Arch: "qwen3moe", Experts: 4},
}

// TestVaryingLayers checks layers of different shapes, with shared keys and values and with inputs of their own. They give
// the same bits in chunks, with several threads and where only the last token's logits are wanted. Such a model has no
// adapters and no shards.
func TestVaryingLayers(t *testing.T) {
	for name, s := range map[string]infertest.Spec{"dense": {LayerInput: 32}, "mixture": {Experts: 6, ExpertFFN: 48}} {
		s.Arch, s.Window = "gemma4", 9
		t.Run(name, func(t *testing.T) { checkVarying(t, infertest.File(t, s)) })
	}
}

func checkVarying(t *testing.T, path string) {
	t.Helper()
	one, many := open(t, path, cpu.Config{Threads: 1}), open(t, path, cpu.Config{Threads: 3})
	seq, vocab := tokens(40, 400, 5), one.Config().Vocab
	want := slices.Clone(forward(t, one, infer.Item{Tokens: seq, Blocks: blocks(3, 3), Want: infer.All})[0])
	for lo := 0; lo < len(seq); lo += 7 {
		hi := min(len(seq), lo+7)
		got := forward(t, many, infer.Item{Tokens: seq[lo:hi], Pos: lo, Blocks: blocks(0, 3), Want: infer.Last})[0]
		if !slices.Equal(got, want[(hi-1)*vocab:][:vocab]) {
			t.Errorf("tokens %d to %d: other logits in a chunk", lo, hi)
		}
	}
	if err := one.LoadAdapter(1, &lora.Adapter{Rank: 1, Layers: make([][lora.NumTargets]*lora.Pair, 6)}); err == nil || !strings.Contains(err.Error(), "gemma4 take no adapters") {
		t.Errorf("an adapter: %v", err)
	}
	if _, err := cpu.Open(path, cpu.Config{Shard: cpu.Shard{Of: 2, Memory: os.Stdin}}); err == nil || !strings.Contains(err.Error(), "leave out --shards") {
		t.Errorf("shards: %v", err)
	}
}

// compare compares rows of results with the expected ones, and allows flips of them to be
// different.
func compare(t *testing.T, what string, got []float32, want [][]float64, least float64, flips int) {
	t.Helper()
	for n, w := range want {
		if c := cosine(got[n*len(w):][:len(w)], w); !(c >= least) {
			if flips--; flips < 0 || c < 0.5 {
				t.Errorf("%s of token %d: cosine %v, want at least %v", what, n, c, least)
			}
		}
	}
}

// cosine returns the cosine of the angle between a result and the expected one.
func cosine(got []float32, want []float64) float64 {
	var ab, aa, bb float64
	for i, w := range want {
		g := float64(got[i])
		ab, aa, bb = ab+g*w, aa+g*g, bb+w*w
	}
	return ab / math.Sqrt(aa*bb)
}

func TestWakeChangedFile(t *testing.T) {
	path := infertest.File(t, infertest.Spec{})
	other := infertest.File(t, infertest.Spec{Layers: 1})
	r := open(t, path, cpu.Config{})
	if err := r.Sleep(2); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("wake without a file: %v", err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(t.Context()); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Errorf("wake with another model: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGoroutines checks that Sleep and Close end the goroutines that Forward started.
func TestGoroutines(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Dim: 256, FFN: 1024})
	before := runtime.NumGoroutine()
	r := open(t, path, cpu.Config{Threads: 4})
	it := infer.Item{Tokens: tokens(64, 400, 1), Blocks: blocks(0, 4), Want: infer.Last}
	for range 3 {
		forward(t, r, it)
		expectGoroutines(t, "after a step", before+3)
		if err := r.Sleep(1); err != nil {
			t.Fatal(err)
		}
		expectGoroutines(t, "asleep", before)
		if err := r.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	forward(t, r, it)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	expectGoroutines(t, "after Close", before)
}

// expectGoroutines waits for ending goroutines to disappear.
func expectGoroutines(t *testing.T, when string, want int) {
	t.Helper()
	n := 0
	for range 1_000_000 {
		if n = runtime.NumGoroutine(); n == want {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%s: %d goroutines, want %d", when, n, want)
}

// TestBorrowed opens a model in memory, at any alignment.
func TestBorrowed(t *testing.T) {
	s := infertest.Spec{Type: gguf.F32}
	want := forward(t, open(t, infertest.File(t, s), cpu.Config{}), infer.Item{Tokens: []int32{5, 6}, Blocks: []int32{0}, Want: infer.Last})[0]
	b, err := infertest.Bytes(s)
	if err != nil {
		t.Fatal(err)
	}
	for shift := range 4 {
		moved := append(make([]byte, shift, len(b)+shift), b...)[shift:]
		f, err := gguf.Parse(moved)
		if err != nil {
			t.Fatal(err)
		}
		r, err := cpu.New(f, cpu.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for level := range 3 {
			if level > 0 {
				if err := errors.Join(r.Sleep(level), r.Wake(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			got := forward(t, r, infer.Item{Tokens: []int32{5, 6}, Blocks: []int32{0}, Want: infer.Last})[0]
			if !slices.Equal(got, want) {
				t.Errorf("shifted by %d, after sleep %d: other logits", shift, level)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	path := infertest.File(t, infertest.Spec{})
	for want, cfg := range map[string]cpu.Config{
		"Threads is -1":         {Threads: -1},
		"CacheBytes is -5":      {CacheBytes: -5},
		"raise CacheBytes":      {CacheBytes: 100},
		"TileLimit is -1":       {TileLimit: -1},
		"rank 2 of 2":           {Shard: cpu.Shard{Rank: 2, Of: 2}},
		"Shard.Memory":          {Shard: cpu.Shard{Of: 2}},
		"Sequences is 92233720": {Sequences: math.MaxInt},
	} {
		if _, err := cpu.Open(path, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", cfg, err, want)
		}
	}
	if _, err := cpu.Open(filepath.Join(t.TempDir(), "none"), cpu.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestBlocks checks that the cache's size follows the configuration.
func TestBlocks(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Context: 100, Layers: 2, Dim: 64}) // 2·2·64·2 bytes a position
	for _, tt := range []struct {
		cfg         cpu.Config
		count, size int
	}{
		{cpu.Config{}, 7 * 8, 16},
		{cpu.Config{Sequences: 3}, 21, 16},
		{cpu.Config{Context: 32, Sequences: 2}, 4, 16},
		{cpu.Config{Context: 1000, Sequences: 1}, 7, 16},
		{cpu.Config{CacheBytes: 5*16*512 + 100}, 5, 16},
	} {
		r := open(t, path, tt.cfg)
		if count, size := r.Blocks(); count != tt.count || size != tt.size {
			t.Errorf("%+v: %d blocks of %d, want %d of %d", tt.cfg, count, size, tt.count, tt.size)
		}
	}
}

// FuzzModel checks for any file that opening it and running a step end in an error or in
// logits.
func FuzzModel(f *testing.F) {
	for _, s := range []infertest.Spec{{}, {Arch: "qwen2", Type: gguf.Q8_0, Untied: true, RopeFactors: true}, {Type: gguf.F16, RopeScale: 2},
		{Arch: "qwen3moe", Experts: 3}, {Arch: "gemma2"}, {Arch: "phi3", RopeFactors: true, RopeTrain: 64}, {Arch: "gemma3", Window: 2}, {Arch: "gpt-oss", Window: 2}, {Arch: "glm4moe"}} {
		s.Dim, s.Layers, s.Heads, s.FFN, s.Vocab, s.NoTemplate = 32, 1, 2, 32, 360, true
		b, err := infertest.Bytes(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := gguf.Parse(b)
		if err != nil {
			return
		}
		r, err := cpu.New(file, cpu.Config{Threads: 1, Sequences: 1, CacheBytes: 1 << 24})
		if err != nil {
			return
		}
		defer r.Close()
		c := r.Config()
		n := min(3, c.Context)
		out, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{{Tokens: make([]int32, n), Blocks: []int32{0}, Want: infer.Last}}})
		if err != nil || len(out.Logits[0]) != c.Vocab {
			t.Fatalf("%d logits for a vocabulary of %d: %v", len(out.Logits), c.Vocab, err)
		}
	})
}
