// Package infertest has the fixtures of the engine's tests: models of any size with random weights and a real
// tokenizer, a fake infer.Inferencer, and a suite for all of them. A model's text is nonsense, but its file is valid
// GGUF, and the same Spec gives the same bytes everywhere.
package infertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

// Spec describes a model to generate. Zero fields get defaults (see withDefaults) that make a tiny llama model.
type Spec struct {
	Arch    string // of model.Architectures
	Dim     int
	Layers  int // default 2; gemma3 6: five with a window and one without; gemma4 6: twice two and one; qwen35 4: three with a delta net and one without
	Heads   int
	KVHeads int
	HeadDim int
	FFN     int
	Vocab   int // default 400; at least about 260 (BPE) or 360 (SPM)
	Context int
	Type    gguf.Type // of the matrices: any that is Decodable; default F32
	Seed    uint64

	// Mix are types that the matrices use in turn, instead of Type.
	Mix []gguf.Type

	Experts     int // for llama, gemma4, qwen3moe, gpt-oss and glm4moe; default for the last three 4
	ExpertsUsed int
	ExpertFFN   int

	Window       int     // of llama, gemma2, gemma3, gpt-oss, phi3; default for gemma2, gemma3 and gpt-oss 16
	LayerInput   int     // gemma4: width of the layers' inputs; with it the second half of the layers has no keys and values
	AttnSoftcap  float32 // gemma2; default 2, at which random weights show it
	LogitSoftcap float32 // gemma2 and gemma3; default for gemma2 4

	Images      bool // gemma3: with the tokens around an image
	Untied      bool
	SPM         bool // SentencePiece instead of byte-level BPE; gemma and phi3 always
	Pre         string
	NoTemplate  bool
	RopeBase    float32
	RopeDim     int
	RopeScaling string  // linear, yarn
	RopeScale   float32 // factor of linear scaling and of YaRN; default none
	RopeTrain   int
	RopeFactors bool // with a rope_freqs.weight tensor, as Llama 3 has; phi3: with both rope_factors tensors
	RopeMag     float32
	Std         float32
}

// Small returns a tiny model of the same architecture, types and context.
func (s Spec) Small() Spec {
	return Spec{Arch: s.Arch, Type: s.Type, Context: s.Context, Vocab: min(s.Vocab, 1000), Std: s.Std}
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
	block := s.block()
	or(&s.Dim, max(64, block))
	or(&s.Layers, map[string]int{"gemma3": 6, "gemma4": 6, "qwen35": 4}[s.Arch])
	or(&s.Layers, 2)
	or(&s.Heads, 4)
	if s.Arch == "gemma4" {
		or(&s.KVHeads, s.Heads/2) // twice as many in layers with a window
		s.RopeFactors = true
	}
	or(&s.KVHeads, s.Heads)
	or(&s.HeadDim, s.Dim/max(s.Heads, 1))
	or(&s.FFN, (2*s.Dim+block-1)/block*block)
	or(&s.Vocab, 400)
	or(&s.Context, 256)
	or(&s.RopeDim, s.HeadDim)
	or(&s.RopeTrain, s.Context)
	if s.mixture() {
		or(&s.Experts, 4)
	}
	if s.Experts > 0 {
		or(&s.ExpertsUsed, 2)
		or(&s.ExpertFFN, s.FFN)
	}
	if s.Arch == "gemma2" || s.Arch == "gemma3" || s.Arch == "gemma4" || s.Arch == "gpt-oss" {
		or(&s.Window, 16)
	}
	if s.Arch == "gemma2" && s.AttnSoftcap == 0 {
		s.AttnSoftcap = 2
	}
	if s.Arch == "gemma2" && s.LogitSoftcap == 0 {
		s.LogitSoftcap = 4
	}
	if s.RopeBase == 0 {
		s.RopeBase = 10000
	}
	if strings.HasPrefix(s.Arch, "gemma") || s.Arch == "phi3" {
		s.SPM = true
	}
	if s.Pre == "" {
		s.Pre = "gpt-2"
		switch {
		case s.Arch == "qwen35":
			s.Pre = "qwen35"
		case strings.HasPrefix(s.Arch, "qwen"):
			s.Pre = "qwen2"
		case strings.HasPrefix(s.Arch, "glm4"):
			s.Pre = "glm4"
		case s.Arch == "gpt-oss":
			s.Pre = "gpt-4o"
		}
	}
	return s
}

func (s Spec) mixture() bool {
	return s.Arch == "qwen3moe" || s.Arch == "gpt-oss" || s.Arch == "glm4moe"
}

func (s Spec) types() []gguf.Type {
	if len(s.Mix) > 0 {
		return s.Mix
	}
	return []gguf.Type{s.Type}
}

func (s Spec) block() int {
	b := 32
	for _, t := range s.types() {
		b = max(b, t.Block())
	}
	return b
}

// Validate returns an error that names the invalid field.
func (s Spec) Validate() error {
	for _, t := range s.types() {
		if !t.Decodable() {
			return fmt.Errorf("model spec: type %s cannot be written", t)
		}
	}
	s = s.withDefaults()
	for _, f := range []struct {
		name string
		v    int
	}{{"Dim", s.Dim}, {"Layers", s.Layers}, {"Heads", s.Heads}, {"KVHeads", s.KVHeads}, {"HeadDim", s.HeadDim},
		{"FFN", s.FFN}, {"Vocab", s.Vocab}, {"Context", s.Context}, {"RopeDim", s.RopeDim}, {"RopeTrain", s.RopeTrain},
		{"Window", s.Window + 1}, {"Experts", s.Experts + 1}, {"ExpertsUsed", s.ExpertsUsed + 1}, {"ExpertFFN", s.ExpertFFN + 1}} {
		if f.v < 1 || f.v > 1<<24 {
			return fmt.Errorf("model spec: %s is %d, want 1 to %d", f.name, f.v, 1<<24)
		}
	}
	switch {
	case !slices.Contains(model.Architectures(), s.Arch):
		return fmt.Errorf("model spec: Arch is %q, want one of %s", s.Arch, strings.Join(model.Architectures(), ", "))
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("model spec: Heads %d is not a multiple of KVHeads %d", s.Heads, s.KVHeads)
	case s.RopeDim%2 != 0 || s.RopeDim > s.HeadDim:
		return fmt.Errorf("model spec: RopeDim is %d, want an even number up to HeadDim %d", s.RopeDim, s.HeadDim)
	case s.ExpertsUsed > s.Experts:
		return fmt.Errorf("model spec: ExpertsUsed is %d of %d", s.ExpertsUsed, s.Experts)
	case s.Experts > 0 && s.Arch != "llama" && s.Arch != "gemma4" && !s.mixture():
		return fmt.Errorf("model spec: %s has no experts", s.Arch)
	}
	for _, t := range s.types() {
		if b := t.Block(); s.Dim%b != 0 || s.FFN%b != 0 || s.Heads*s.HeadDim%b != 0 || s.ExpertFFN%b != 0 {
			return fmt.Errorf("model spec: %s needs Dim %d, FFN %d, ExpertFFN %d and Heads·HeadDim %d to be multiples of %d", t, s.Dim, s.FFN, s.ExpertFFN, s.Heads*s.HeadDim, b)
		}
	}
	return nil
}

// Write generates the model and writes it as GGUF, a few rows at a time, on all CPUs.
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

// Bytes returns the output of Write.
func Bytes(s Spec) ([]byte, error) {
	var b bytes.Buffer
	err := Write(&b, s)
	return b.Bytes(), err
}

// T is the part of testing.TB that this package uses, so that commands can import it without package testing.
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

// Split writes the model in data as count files, named after stem like llama-gguf-split's. The first has the
// metadata.
func Split(t T, data []byte, stem string, count int) (paths []string) {
	t.Helper()
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatalf("split model: %v", err)
	}
	all := f.Tensors()
	for i := range count {
		var b bytes.Buffer
		w := gguf.NewWriter(&b)
		if i == 0 {
			for _, key := range f.Keys() {
				w.Copy(f, key)
			}
		}
		w.Set("split.no", i)
		w.Set("split.count", count)
		w.Set("split.tensors.count", len(all))
		for _, tensor := range all[len(all)*i/count : len(all)*(i+1)/count] {
			w.AddTensor(tensor.Name, tensor.Dims, tensor.Type, tensor.Data)
		}
		path := fmt.Sprintf("%s-%05d-of-%05d.gguf", stem, i+1, count)
		if err := errors.Join(w.Flush(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
			t.Fatalf("split model: %v", err)
		}
		paths = append(paths, path)
	}
	return paths
}

// Ensure writes s to path, unless the file exists. An existing file is complete, because it is renamed last.
func Ensure(path string, s Spec) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "generating", path)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Write(f, s); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
