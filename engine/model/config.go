package model

import (
	"fmt"
	"math"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Config is a model's shape, in values, not bytes.
type Config struct {
	Arch    string  // one of Architectures
	Name    string  // may be empty
	Layers  int     // transformer blocks
	Dim     int     // of the residual stream
	Heads   int     // query heads
	KVHeads int     // divides Heads
	HeadDim int     // width of one head
	FFN     int     // of the feed-forward layer; 0: all layers have experts
	Vocab   int     // rows of the embedding; at least the tokenizer's size
	Context int     // positions in training
	RMSEps  float32 // in an encoder LayerNorm's

	// An Encoder's tokens see one another, and LayerNorm follows each half of a block: it makes vectors. If it Ranks,
	// it makes the score of a query with a document.
	Encoder, Ranks bool
	// Pair ends the first text of a pair, whose second has another type of token; 0: all have one.
	Pair int32

	// Window is in positions; 0: none. Every GlobalEvery-th layer sees all positions; 0: none does.
	Window, GlobalEvery int

	// Of Gemma 4. Layers with a window have LocalKVHeads heads of width LocalHeadDim, of which LocalRopeDim values
	// rotate. The last SharedKV layers use the keys and values of the last layer of their kind before; the others have
	// a feed-forward layer of width OwnFFN. Each layer has an input of width LayerInput.
	LocalHeadDim, LocalKVHeads, LocalRopeDim int
	SharedKV, OwnFFN, LayerInput             int

	// Of Qwen3.5. Every GlobalEvery-th layer has attention with a gate, the others a gated delta net
	// (arXiv:2412.06464) of DeltaHeads heads of width DeltaDim. Head h has the query and key of head h mod DeltaKeys,
	// after a convolution over DeltaConv positions.
	DeltaHeads, DeltaKeys, DeltaDim, DeltaConv int

	RopeBase  float64 // frequency base
	RopeDim   int     // rotating values of a head, even; 0: positions are learned
	RopeScale float64 // divisor of positions; 1: none
	RopeNeoX  bool    // pairs are (i, i+RopeDim/2), else (2i, 2i+1)
	Ropes     int     // kinds of rotation, 1 or 2; Layer.Rope selects one

	RopeYaRN  bool    // RopeScale is for low frequencies (arXiv:2309.00071), between RopeFast and RopeSlow
	RopeFast  float64 // rotations over RopeTrain positions from which a frequency is unchanged
	RopeSlow  float64 // rotations below which a frequency is divided by RopeScale
	RopeTrain int     // positions before the context was extended, or Context
	RopeMag   float64 // magnitude of rotated vectors, times YaRN's own; 1: none
	RopeLocal float64 // base of the second kind, which is never scaled

	Experts     int  // 0: none
	ExpertsUsed int  // per token, with the largest router logits
	ExpertFFN   int  // of one expert
	ExpertNorm  bool // the used experts' weights are normalised to the sum 1

	ExpertSigmoid bool    // weights are sigmoids of the router's logits, not a softmax
	ExpertScale   float32 // factor of weights; 0: none
	SharedFFN     int     // of the expert that each token has; 0: none
	DenseLayers   int     // so many first layers have FFN instead of experts

	GELU         bool    // tanh form, in an encoder exact and without a gate; else SiLU
	ClampedGate  bool    // act(gate)·up is gate·sigmoid(1.702·gate)·(up+1), gate at most 7, up from -7 to 7
	EmbedScale   float32 // factor of embeddings; 1: none
	AttnScale    float32 // factor of query · key
	AttnSoftcap  float32 // c·tanh(x/c) of scaled products, before the mask; 0: none
	LogitSoftcap float32 // the same of logits

	Image Image `json:",omitzero"` // zero: it reads none
}

// maxSize keeps products of two hyperparameters from overflow.
const maxSize = 1 << 30

// ReadConfig needs tensors for the size of the vocabulary only.
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
	m := &metadata{file: f, arch: arch, varies: a.varies}
	c := Config{Arch: arch, RopeNeoX: a.neox, EmbedScale: 1, Ropes: 1}
	c.Name, _ = f.String("general.name")
	c.Layers = m.size("block_count", 0)
	c.Dim = m.size("embedding_length", 0)
	c.Context = m.size("context_length", 0)
	c.Heads = m.size("attention.head_count", 0)
	c.KVHeads = m.size("attention.head_count_kv", c.Heads)
	c.HeadDim = m.headDim(c)
	m.norm(&c, a.encoder)
	c.AttnScale = float32(1 / math.Sqrt(float64(c.HeadDim)))
	m.rope(&c, a.factors)
	m.feedForward(&c, a.experts)
	if a.read != nil {
		a.read(m, &c)
	}
	m.refuse(a)
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
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	cap := func(x float32) bool { return x >= 0 && !math.IsInf(float64(x), 0) }
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("%d query heads cannot share %d key-value heads: want a multiple", c.Heads, c.KVHeads)
	case c.RopeDim%2 != 0 || c.RopeDim > c.HeadDim:
		return fmt.Errorf("rope.dimension_count is %d, want an even number up to the head's width %d", c.RopeDim, c.HeadDim)
	case !(c.RMSEps > 0) || c.RMSEps > 1:
		return fmt.Errorf("the norms' epsilon is %v, want a small positive number", c.RMSEps)
	case !positive(c.RopeBase):
		return fmt.Errorf("rope.freq_base is %v, want a positive number", c.RopeBase)
	case !positive(c.RopeScale):
		return fmt.Errorf("rope.scaling.factor is %v, want a positive number", c.RopeScale)
	case !positive(c.RopeMag):
		return fmt.Errorf("rope.scaling.attn_factor is %v, want a positive number", c.RopeMag)
	case c.RopeYaRN && !(positive(c.RopeFast) && positive(c.RopeSlow) && c.RopeBase > 1):
		return fmt.Errorf("rope.scaling.yarn_beta_fast %v and yarn_beta_slow %v must be positive and rope.freq_base %v above 1", c.RopeFast, c.RopeSlow, c.RopeBase)
	case c.Ropes == 2 && !positive(c.RopeLocal):
		return fmt.Errorf("the base of local layers' rotation is %v, want a positive number", c.RopeLocal)
	case !cap(c.AttnSoftcap):
		return fmt.Errorf("attn_logit_softcapping is %v, want a positive number, or 0 for none", c.AttnSoftcap)
	case !cap(c.LogitSoftcap):
		return fmt.Errorf("final_logit_softcapping is %v, want a positive number, or 0 for none", c.LogitSoftcap)
	case c.LocalHeadDim > 0 && (c.LocalRopeDim%2 != 0 || c.LocalRopeDim > c.LocalHeadDim || c.Heads%c.LocalKVHeads != 0):
		return fmt.Errorf("layers with a window have %d query heads, %d key-value heads of width %d and rope.dimension_count_swa %d: want a multiple, and an even number up to the width", c.Heads, c.LocalKVHeads, c.LocalHeadDim, c.LocalRopeDim)
	case !cap(c.ExpertScale):
		return fmt.Errorf("expert_weights_scale is %v, want a positive number, or 0 for none", c.ExpertScale)
	case c.ExpertsUsed > c.Experts:
		return fmt.Errorf("expert_used_count is %d and expert_count only %d", c.ExpertsUsed, c.Experts)
	}
	return nil
}

// Shape is a layer's.
func (c *Config) Shape(layer int) (headDim, kvHeads int) {
	if c.LocalHeadDim > 0 && c.windowed(layer) {
		return c.LocalHeadDim, c.LocalKVHeads
	}
	return c.HeadDim, c.KVHeads
}

func (c *Config) width(layer int) int {
	if c.OwnFFN > 0 && layer < c.Layers-c.SharedKV {
		return c.OwnFFN
	}
	return c.FFN
}

// source returns the layer whose keys and values layer uses.
func (c *Config) source(layer int) int {
	at := layer
	if own := c.Layers - c.SharedKV; at >= own {
		for at = own - 1; c.windowed(at) != c.windowed(layer); at-- {
		}
	}
	return at
}

// Delta reports whether a layer has a gated delta net.
func (c *Config) Delta(layer int) bool { return c.DeltaHeads > 0 && (layer+1)%c.GlobalEvery != 0 }

// Stateful reports whether each token changes a state of its sequence, which can't be used for another one, or again.
func (c Config) Stateful() bool { return c.DeltaHeads > 0 }

// Plain reports whether all layers have one shape and see the past: such models can take adapters and be divided among
// processes.
func (c Config) Plain() bool { return !c.Encoder && c.LocalHeadDim == 0 && !c.Stateful() }

// DeltaChannels is the width of a delta net's convolution.
func (c *Config) DeltaChannels() int { return (2*c.DeltaKeys + c.DeltaHeads) * c.DeltaDim }

func (c *Config) windowed(layer int) bool {
	return c.Window > 0 && (c.GlobalEvery == 0 || (layer+1)%c.GlobalEvery != 0)
}
