// Package infertest makes what tests of the engine need: models with random weights and a
// real tokenizer, in any size, and a fake infer.Inferencer that checks its caller's
// books.
//
// A generated model says nothing sensible, but it is a valid GGUF file in every respect, for
// other programs too, and the same Spec gives the same bytes everywhere: results
// computed elsewhere from the same file can be compared.
package infertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Spec describes a model to generate. Zero fields take defaults that make a tiny
// model of the llama architecture.
type Spec struct {
	Arch    string    // llama or qwen2; default llama
	Dim     int       // default 64
	Layers  int       // default 2
	Heads   int       // default 4
	KVHeads int       // default Heads
	HeadDim int       // default Dim/Heads; other values write attention.key_length
	FFN     int       // default 2·Dim, rounded up to 32
	Vocab   int       // default 400; at least the tokenizer's fixed part, about 260 (BPE) or 360 (SPM)
	Context int       // default 256
	Type    gguf.Type // of the matrices: F32 (default), F16, BF16, Q8_0
	Seed    uint64

	Untied      bool    // with an output matrix of its own
	SPM         bool    // a SentencePiece vocabulary instead of byte-level BPE
	Pre         string  // BPE pre-tokenizer; default gpt-2, for qwen2 qwen2
	NoTemplate  bool    // without a chat template
	RopeBase    float32 // default 10000
	RopeDim     int     // default HeadDim
	RopeScale   float32 // linear scaling; default none
	RopeFactors bool    // with a rope_freqs.weight tensor, as Llama 3 has
	Std         float32 // of the weights; default 1/√columns
}

func (s Spec) withDefaults() Spec {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if s.Arch == "" {
		s.Arch = "llama"
	}
	or(&s.Dim, 64)
	or(&s.Layers, 2)
	or(&s.Heads, 4)
	or(&s.KVHeads, s.Heads)
	or(&s.HeadDim, s.Dim/max(s.Heads, 1))
	or(&s.FFN, (2*s.Dim+31)/32*32)
	or(&s.Vocab, 400)
	or(&s.Context, 256)
	or(&s.RopeDim, s.HeadDim)
	if s.RopeBase == 0 {
		s.RopeBase = 10000
	}
	if s.Pre == "" {
		s.Pre = map[string]string{"llama": "gpt-2", "qwen2": "qwen2"}[s.Arch]
	}
	return s
}

// Validate says which field is wrong.
func (s Spec) Validate() error {
	s = s.withDefaults()
	for _, f := range []struct {
		name string
		v    int
	}{{"Dim", s.Dim}, {"Layers", s.Layers}, {"Heads", s.Heads}, {"KVHeads", s.KVHeads}, {"HeadDim", s.HeadDim},
		{"FFN", s.FFN}, {"Vocab", s.Vocab}, {"Context", s.Context}, {"RopeDim", s.RopeDim}} {
		if f.v < 1 || f.v > 1<<24 {
			return fmt.Errorf("model spec: %s is %d, want 1 to %d", f.name, f.v, 1<<24)
		}
	}
	switch {
	case s.Arch != "llama" && s.Arch != "qwen2":
		return fmt.Errorf("model spec: Arch is %q, want llama or qwen2", s.Arch)
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("model spec: Heads %d is not a multiple of KVHeads %d", s.Heads, s.KVHeads)
	case s.RopeDim%2 != 0 || s.RopeDim > s.HeadDim:
		return fmt.Errorf("model spec: RopeDim is %d, want an even number up to HeadDim %d", s.RopeDim, s.HeadDim)
	case s.Type != gguf.F32 && s.Type != gguf.F16 && s.Type != gguf.BF16 && s.Type != gguf.Q8_0:
		return fmt.Errorf("model spec: Type is %s, want F32, F16, BF16 or Q8_0", s.Type)
	case s.Type == gguf.Q8_0 && (s.Dim%32 != 0 || s.FFN%32 != 0 || s.Heads*s.HeadDim%32 != 0):
		return fmt.Errorf("model spec: Q8_0 needs Dim %d, FFN %d and Heads·HeadDim %d to be multiples of 32", s.Dim, s.FFN, s.Heads*s.HeadDim)
	}
	return nil
}

// Write generates the model and writes it as GGUF. Tensors are made one at a time, so the
// memory needed is small whatever the model's size.
func Write(w io.Writer, s Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	s = s.withDefaults()
	g := gguf.NewWriter(w)
	s.metadata(g)
	if err := s.tokenizer(g); err != nil {
		return err
	}
	s.weights(g)
	return g.Flush()
}

// Bytes is Write to memory.
func Bytes(s Spec) ([]byte, error) {
	var b bytes.Buffer
	err := Write(&b, s)
	return b.Bytes(), err
}

// T is the part of testing.TB that this package uses, so that commands can import it
// without package testing.
type T interface {
	Helper()
	TempDir() string
	Fatalf(format string, args ...any)
}

// File writes the model to a temporary file of the test and returns its path.
func File(t T, s Spec) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err == nil {
		err = Write(f, s)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		t.Fatalf("generate model: %v", err)
	}
	return path
}

// Open generates the model in memory and parses it.
func Open(t T, s Spec) *gguf.File {
	t.Helper()
	b, err := Bytes(s)
	if err != nil {
		t.Fatalf("generate model: %v", err)
	}
	f, err := gguf.Parse(b)
	if err != nil {
		t.Fatalf("parse generated model: %v", err)
	}
	return f
}

func (s Spec) metadata(g *gguf.Writer) {
	a := s.Arch + "."
	g.SetString("general.architecture", s.Arch)
	g.SetString("general.name", fmt.Sprintf("random-%s-%dx%d", s.Arch, s.Layers, s.Dim))
	g.SetUint32("general.alignment", 32)
	g.SetUint32("general.file_type", map[gguf.Type]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q8_0: 7, gguf.BF16: 32}[s.Type])
	g.SetUint32(a+"context_length", uint32(s.Context))
	g.SetUint32(a+"embedding_length", uint32(s.Dim))
	g.SetUint32(a+"block_count", uint32(s.Layers))
	g.SetUint32(a+"feed_forward_length", uint32(s.FFN))
	g.SetUint32(a+"attention.head_count", uint32(s.Heads))
	g.SetUint32(a+"attention.head_count_kv", uint32(s.KVHeads))
	g.SetUint32(a+"attention.key_length", uint32(s.HeadDim))
	g.SetUint32(a+"attention.value_length", uint32(s.HeadDim))
	g.SetFloat32(a+"attention.layer_norm_rms_epsilon", 1e-5)
	g.SetFloat32(a+"rope.freq_base", s.RopeBase)
	g.SetUint32(a+"rope.dimension_count", uint32(s.RopeDim))
	if s.RopeScale > 0 {
		g.SetString(a+"rope.scaling.type", "linear")
		g.SetFloat32(a+"rope.scaling.factor", s.RopeScale)
	}
	g.SetUint32(a+"vocab_size", uint32(s.Vocab))
}
