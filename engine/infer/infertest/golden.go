package infertest

import (
	"embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Golden is a generated model and llama.cpp's results for it. TestMakeGoldens writes them.
type Golden struct {
	Name   string // variant and type, as gemma2/Q4_K
	Spec   Spec
	SHA256 string
	Runs   []GoldenRun
}

// GoldenRun is one prompt and its continuation.
type GoldenRun struct {
	IDs    []int32
	Logits Halves  // after IDs
	Greedy []int32 // the best token after IDs, after IDs and that token, and so on
	Ties   []int   // steps at which the two best are so close that rounding decides
}

// Halves are numbers, in JSON as Base64 of little-endian IEEE halves.
type Halves []float32

// MarshalJSON implements json.Marshaler.
func (h Halves) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2*len(h))
	for _, x := range h {
		b = binary.LittleEndian.AppendUint16(b, gguf.F32ToF16(x))
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(b))
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Halves) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return err
	}
	*h = make([]float32, len(b)/2)
	for i := range *h {
		(*h)[i] = gguf.F16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return nil
}

// Check compares an answer to one of g's runs: got[i] are the logits after IDs and the first i of Greedy. It returns
// the cosine of got[0] to llama.cpp's logits, and an error if it is below 0.999, for F32 0.99999, or if another token
// is the best (except at Ties).
func (g *Golden) Check(r *GoldenRun, got [][]float32) (cosine float64, err error) {
	least := 0.999
	if g.exact() {
		least = 0.99999
	}
	cosine = Cosine(got[0], r.Logits)
	if !(cosine >= least) {
		return cosine, fmt.Errorf("after %d tokens: cosine %v, want at least %v", len(r.IDs), cosine, least)
	}
	for i, want := range r.Greedy[:min(len(r.Greedy), len(got))] {
		if slices.Contains(r.Ties, i) {
			continue
		}
		best := 0
		for id, l := range got[i] {
			if l > got[i][best] {
				best = id
			}
		}
		if int32(best) != want {
			return cosine, fmt.Errorf("after %d tokens and %d more: best is %d with %v, want %d, which has %v", len(r.IDs), i, best, got[i][best], want, got[i][want])
		}
	}
	return cosine, nil
}

func (g *Golden) exact() bool { return g.Spec.Type == gguf.F32 && len(g.Spec.Mix) == 0 }

// Near returns the gap between the two best logits below which rounding may decide.
func (g *Golden) Near() float32 {
	if g.exact() {
		return 0.01
	}
	return 0.15
}

// Cosine returns the cosine of two vectors of the same length; NaN if one is zero.
func Cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		x, y := float64(x), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

var goldenTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K}

var (
	goldenFamilies = map[string]Spec{
		"llama":    {KVHeads: 2, Untied: true},
		"mistral":  {SPM: true, HeadDim: 128, KVHeads: 1, RopeBase: 1e6, Untied: true},
		"qwen2":    {Arch: "qwen2", Untied: true, KVHeads: 2, RopeBase: 1e6},
		"qwen3":    {Arch: "qwen3", Untied: true, KVHeads: 2, HeadDim: 128, RopeBase: 1e6},
		"qwen35":   {Arch: "qwen35", KVHeads: 1, HeadDim: 64, RopeDim: 16, RopeBase: 1e7},
		"qwen3moe": {Arch: "qwen3moe", KVHeads: 2, RopeBase: 1e6, Untied: true},
		"gemma":    {Arch: "gemma", KVHeads: 1},
		"gemma2":   {Arch: "gemma2", KVHeads: 2},
		"gemma3":   {Arch: "gemma3", Untied: true, KVHeads: 1, HeadDim: 128, RopeBase: 1e6},
		"phi3":     {Arch: "phi3", Untied: true},
		"gpt-oss":  {Arch: "gpt-oss", KVHeads: 2, RopeBase: 150000, RopeScaling: "yarn", RopeScale: 8, RopeTrain: 64, Untied: true},
		"gemma4":   {Arch: "gemma4", KVHeads: 1, HeadDim: 128, RopeBase: 1e6, RopeFactors: true, LogitSoftcap: 4},
		"gemma4-e": {Arch: "gemma4", KVHeads: 1, HeadDim: 128, RopeBase: 1e6, RopeFactors: true, LayerInput: 32},
		"gemma4-m": {Arch: "gemma4", KVHeads: 1, HeadDim: 128, RopeBase: 1e6, Experts: 4, ExpertsUsed: 4},
		"glm4":     {Arch: "glm4", KVHeads: 2, RopeDim: 32, Untied: true},
		"glm4moe":  {Arch: "glm4moe", Layers: 3, KVHeads: 2, RopeDim: 32, RopeBase: 1e6, Untied: true},
	}
	goldenVariants = map[string]Spec{
		"llama3":      {KVHeads: 1, RopeFactors: true, RopeBase: 500000, Pre: "llama-bpe"},
		"llama-spm":   {SPM: true, Seed: 3},
		"llama-scale": {RopeScale: 4, Untied: true},
		"llama-yarn":  {Untied: true, RopeScaling: "yarn", RopeScale: 8, RopeTrain: 64},
		"llama-mix":   {Untied: true, Mix: []gguf.Type{gguf.Q6_K, gguf.Q4_K, gguf.Q4_K, gguf.Q5_K}, KVHeads: 2},
		"mixtral":     {Untied: true, Experts: 4, KVHeads: 2},
		"qwen3-yarn":  {Arch: "qwen3", Untied: true, RopeScaling: "yarn", RopeScale: 4, RopeTrain: 400, RopeBase: 1e6},
		"gemma3-4b":   {Arch: "gemma3", Untied: true, KVHeads: 2, RopeScale: 8, RopeBase: 1e6},
		"phi3-long":   {Arch: "phi3", Untied: true, RopeFactors: true, RopeTrain: 64, RopeMag: 1.19, RopeDim: 48},
		"phi3-short":  {Arch: "phi3", Untied: true, RopeFactors: true, KVHeads: 2},
	}
)

const goldenContext = 512

// GoldenSpecs returns the models that have goldens, without answers, ordered by name. The name before the slash is
// the file's.
func GoldenSpecs() []Golden {
	var out []Golden
	add := func(name string, s Spec, t gguf.Type) {
		s.Dim, s.FFN, s.Context, s.Type = 256, 256, goldenContext, t
		kind := t.String()
		if len(s.Mix) > 0 {
			kind = "mix"
		}
		out = append(out, Golden{Name: name + "/" + kind, Spec: s})
	}
	for _, name := range slices.Sorted(maps.Keys(goldenFamilies)) {
		types := goldenTypes
		switch name {
		case "gpt-oss":
			types = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.MXFP4}
		case "glm4", "glm4moe":
			types = []gguf.Type{gguf.F32, gguf.Q4_K}
		case "gemma4", "gemma4-e", "gemma4-m", "qwen35":
			types = []gguf.Type{gguf.F32, gguf.Q8_0}
		case "llama":
			types = append(types[:len(types):len(types)], gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q2_K, gguf.Q3_K, gguf.IQ4_NL, gguf.IQ4_XS)
		}
		for _, t := range types {
			add(name, goldenFamilies[name], t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(goldenVariants)) {
		add(name, goldenVariants[name], gguf.F32)
		if len(goldenVariants[name].Mix) == 0 {
			add(name, goldenVariants[name], gguf.Q8_0)
		}
	}
	return out
}

// GoldenPrompts returns the prompts for a vocabulary.
func GoldenPrompts(vocab int) [][]int32 {
	r := rand.New(rand.NewPCG(5, 17))
	var out [][]int32
	for _, n := range []int{4, 33, 90} {
		p := make([]int32, n)
		for i := range p {
			p[i] = int32(r.IntN(vocab))
		}
		out = append(out, p)
	}
	return out
}

//go:embed testdata/golden
var goldenFiles embed.FS

// Goldens returns all models with the answers, ordered by name.
func Goldens() ([]Golden, error) {
	entries, err := goldenFiles.ReadDir("testdata/golden")
	if err != nil {
		return nil, err
	}
	answers := map[string]Golden{}
	for _, e := range entries {
		data, err := goldenFiles.ReadFile("testdata/golden/" + e.Name())
		if err != nil {
			return nil, err
		}
		var file struct{ Models []Golden }
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		for _, g := range file.Models {
			answers[g.Name] = g
		}
	}
	all := GoldenSpecs()
	for i, g := range all {
		a, ok := answers[g.Name]
		if !ok {
			return nil, fmt.Errorf("there are no answers for the model %s: TestMakeGoldens makes them (engine/golden/README.md)", g.Name)
		}
		all[i].SHA256, all[i].Runs = a.SHA256, a.Runs
	}
	return all, nil
}

// MarshalJSON implements json.Marshaler. The Spec is in this package.
func (g Golden) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name, SHA256 string
		Runs         []GoldenRun
	}{g.Name, g.SHA256, g.Runs})
}
