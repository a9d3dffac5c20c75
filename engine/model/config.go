package model

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Config is a model's shape. Sizes count values, not bytes.
type Config struct {
	Arch    string // llama or qwen2
	Name    string // general.name, may be empty
	Layers  int    // transformer blocks
	Dim     int    // width of the residual stream
	Heads   int    // query heads
	KVHeads int    // key and value heads; divides Heads
	HeadDim int    // width of one head
	FFN     int    // width of the feed-forward layer
	Vocab   int    // rows of the embedding, thus the number of logits; at least the tokenizer's size
	Context int    // positions that the model was trained for
	RMSEps  float32

	RopeBase  float64 // frequency base
	RopeDim   int     // how many of a head's HeadDim values rotate; even
	RopeScale float64 // positions are divided by this (linear scaling); 1 means none
	RopeNeoX  bool    // pairs are (i, i+RopeDim/2), else (2i, 2i+1)
	Ropes     int     // 1 or 2 kinds of rotation; Layer.Rope says which one, Model.Rope computes it

	Experts     int  // 0: no mixture of experts
	ExpertsUsed int  // experts that a token passes through, the ones with the largest router logits
	ExpertFFN   int  // width of one expert
	ExpertNorm  bool // the softmax weights of those used are divided by their sum

	GELU         bool    // the feed-forward gate is GELU (tanh form), else SiLU
	EmbedScale   float32 // embeddings are multiplied by this; 1 means none
	AttnScale    float32 // query · key is multiplied by this
	AttnSoftcap  float32 // c·tanh(x/c) of the scaled products, before the mask; 0 means none
	LogitSoftcap float32 // the same for logits
}

// architecture is what distinguishes one family from another.
type architecture struct {
	neox    bool // RoPE pairs are halves of the head
	qkvBias bool // attention projections must have biases
}

var architectures = map[string]architecture{
	"llama": {},
	"qwen2": {neox: true, qkvBias: true},
}

// Architectures lists the supported architectures.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// maxSize bounds every hyperparameter, so that products of two never overflow.
const maxSize = 1 << 30

// ReadConfig reads the shape from the metadata and checks that it is consistent. It
// looks at tensors only to learn the size of the vocabulary.
func ReadConfig(f *gguf.File) (Config, error) {
	c, err := readConfig(f)
	if err != nil {
		return Config{}, fmt.Errorf("read model metadata: %w", err)
	}
	return c, nil
}

func readConfig(f *gguf.File) (Config, error) {
	arch := f.Architecture()
	a, ok := architectures[arch]
	switch {
	case arch == "":
		return Config{}, fmt.Errorf("general.architecture is missing: the file holds no model")
	case !ok:
		return Config{}, fmt.Errorf("architecture %q is not supported; supported are %s", arch, strings.Join(Architectures(), ", "))
	}
	if n, ok := f.Uint("split.count"); ok && n > 1 {
		return Config{}, fmt.Errorf("the file is one of %d parts: merge them into one file (llama-gguf-split --merge)", n)
	}
	m := &metadata{file: f, arch: arch}
	c := Config{Arch: arch, RopeNeoX: a.neox}
	c.Name, _ = f.String("general.name")
	c.Layers = m.size("block_count", 0)
	c.Dim = m.size("embedding_length", 0)
	c.FFN = m.size("feed_forward_length", 0)
	c.Context = m.size("context_length", 0)
	c.Heads = m.size("attention.head_count", 0)
	c.KVHeads = m.size("attention.head_count_kv", c.Heads)
	c.HeadDim = m.headDim(c)
	c.RMSEps = float32(m.float("attention.layer_norm_rms_epsilon", 0))
	m.rope(&c)
	c.Ropes, c.EmbedScale, c.AttnScale = 1, 1, float32(1/math.Sqrt(float64(c.HeadDim)))
	m.refuse()
	if m.err != nil {
		return Config{}, m.err
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	t, ok := f.Tensor(nameEmbed)
	if !ok || len(t.Dims) != 2 {
		return Config{}, fmt.Errorf("tensor %q is missing or not a matrix: the file holds no token embedding", nameEmbed)
	}
	c.Vocab = t.Dims[1]
	if _, _, n, ok := f.Kind("tokenizer.ggml.tokens"); ok && n > c.Vocab {
		return Config{}, fmt.Errorf("the tokenizer has %d tokens and tensor %q only %d rows", n, nameEmbed, c.Vocab)
	}
	return c, nil
}

func (c Config) check() error {
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d query heads cannot share %d key-value heads: want a multiple", c.Heads, c.KVHeads)
	case c.RopeDim%2 != 0 || c.RopeDim > c.HeadDim:
		return fmt.Errorf("rope.dimension_count is %d, want an even number up to the head's width %d", c.RopeDim, c.HeadDim)
	case !(c.RMSEps > 0) || c.RMSEps > 1:
		return fmt.Errorf("attention.layer_norm_rms_epsilon is %v, want a small positive number", c.RMSEps)
	case !(c.RopeBase > 0) || math.IsInf(c.RopeBase, 0):
		return fmt.Errorf("rope.freq_base is %v, want a positive number", c.RopeBase)
	case !(c.RopeScale > 0) || math.IsInf(c.RopeScale, 0):
		return fmt.Errorf("rope.scaling.factor is %v, want a positive number", c.RopeScale)
	}
	return nil
}

// metadata reads keys of one architecture and keeps the first error.
type metadata struct {
	file *gguf.File
	arch string
	err  error
}

func (m *metadata) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

// size reads a positive number. or stands in for an absent key; 0 makes it required.
// Some files give one number per layer: that is fine while all are equal.
func (m *metadata) size(name string, or int) int {
	key := m.arch + "." + name
	n, ok := m.file.Uint(key)
	if all, isList := m.file.Ints(key); isList && len(all) > 0 {
		n, ok = uint64(max(all[0], 0)), true
		for _, x := range all {
			if x != all[0] {
				m.fail("%s differs between layers (%d and %d): such models are not supported", key, all[0], x)
			}
		}
	}
	_, _, _, present := m.file.Kind(key)
	switch {
	case !present && or > 0:
		return or
	case !present:
		m.fail("%s is missing", key)
	case !ok || n == 0 || n > maxSize:
		m.fail("%s must be a whole number from 1 to %d, and is not", key, maxSize)
	default:
		return int(n)
	}
	return 1
}

// float reads a number. or stands in for an absent key; 0 makes it required.
func (m *metadata) float(name string, or float64) float64 {
	key := m.arch + "." + name
	x, ok := m.file.Float(key)
	_, _, _, present := m.file.Kind(key)
	switch {
	case ok:
		return x
	case present:
		m.fail("%s must be a floating-point number, and is not", key)
	case or == 0:
		m.fail("%s is missing", key)
	}
	return or
}

func (m *metadata) headDim(c Config) int {
	if _, _, _, ok := m.file.Kind(m.arch + ".attention.key_length"); !ok && c.Dim%c.Heads != 0 {
		m.fail("embedding_length %d is not a multiple of attention.head_count %d, and attention.key_length is missing", c.Dim, c.Heads)
	}
	k := m.size("attention.key_length", max(c.Dim/c.Heads, 1))
	if v := m.size("attention.value_length", k); v != k {
		m.fail("attention.value_length %d differs from attention.key_length %d: such models are not supported", v, k)
	}
	return k
}

// rope reads the rotary embedding. Linear scaling is honoured, as is the tensor
// rope_freqs.weight (Llama 3), which Load reads; other kinds are refused.
func (m *metadata) rope(c *Config) {
	c.RopeBase = m.float("rope.freq_base", 10000)
	c.RopeDim = m.size("rope.dimension_count", c.HeadDim)
	c.RopeScale = 1
	kind, ok := m.file.String(m.arch + ".rope.scaling.type")
	if !ok {
		kind = "linear" // llama.cpp's default, with the older key scale_linear
	}
	switch kind {
	case "none":
	case "linear":
		c.RopeScale = m.float("rope.scaling.factor", m.float("rope.scale_linear", 1))
		if c.RopeScale == 0 { // written by some converters for "not set"
			c.RopeScale = 1
		}
	default:
		m.fail("%s.rope.scaling.type %q is not supported; supported are none and linear", m.arch, kind)
	}
	if x, ok := m.file.Float(m.arch + ".rope.scaling.attn_factor"); ok && x != 1 {
		m.fail("%s.rope.scaling.attn_factor %v is not supported: want 1", m.arch, x)
	}
}

// refuse looks for features that change the computation and are not implemented.
func (m *metadata) refuse() {
	for _, name := range []string{"expert_count", "attention.sliding_window"} {
		if n, ok := m.file.Uint(m.arch + "." + name); ok && n > 0 {
			m.fail("%s.%s is %d: such models are not supported", m.arch, name, n)
		}
	}
}
