package model

import (
	"fmt"
	"math"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Config is a model's shape. Sizes count values, not bytes.
type Config struct {
	Arch    string  // one of Architectures
	Name    string  // general.name, may be empty
	Layers  int     // transformer blocks
	Dim     int     // width of the residual stream
	Heads   int     // query heads
	KVHeads int     // key and value heads; divides Heads
	HeadDim int     // width of one head
	FFN     int     // width of the feed-forward layer; 0 if all layers are mixtures of experts
	Vocab   int     // rows of the embedding, and so the number of logits; at least the tokenizer's size
	Context int     // positions that the model was trained for
	RMSEps  float32 // of LayerNorm in an encoder

	// Encoder says that all tokens of a sequence see one another, and that LayerNorm follows each half of a block. Such
	// a model makes vectors, not texts. Ranks says that it makes the score of a query with a document instead.
	Encoder, Ranks bool
	// Pair is the token that ends the first text of a pair, whose second has another type of token; 0: all have one.
	Pair int32

	// Window is the sliding window's size in positions; 0: no layer has one. Every GlobalEvery-th layer sees all
	// positions; 0: none does.
	Window, GlobalEvery int

	// Of Gemma 4; all are 0 in other models. Layers with a window have LocalKVHeads heads of width LocalHeadDim, of which
	// LocalRopeDim values rotate. The last SharedKV layers have no keys and values, but use those of the last layer of their kind
	// before them; the others have a feed-forward layer of width OwnFFN. Each layer has an input of width LayerInput.
	LocalHeadDim, LocalKVHeads, LocalRopeDim int
	SharedKV, OwnFFN, LayerInput             int

	// Of Qwen3.5; all are 0 in other models. Every GlobalEvery-th layer has attention with a gate. The others have a gated delta
	// net (arXiv:2412.06464): DeltaHeads heads of width DeltaDim, of which head h has the query and key of head h mod DeltaKeys,
	// after a convolution over DeltaConv positions.
	DeltaHeads, DeltaKeys, DeltaDim, DeltaConv int

	RopeBase  float64 // frequency base
	RopeDim   int     // how many of a head's HeadDim values rotate; even. 0: positions are learned
	RopeScale float64 // divisor of positions; 1 means none
	RopeNeoX  bool    // pairs are (i, i+RopeDim/2), else (2i, 2i+1)
	Ropes     int     // the number of kinds of rotation, 1 or 2; Layer.Rope selects one, Model.Rope computes it

	RopeYaRN  bool    // RopeScale is for the low frequencies only (arXiv:2309.00071), between RopeFast and RopeSlow
	RopeFast  float64 // rotations over RopeTrain positions from which a frequency is unchanged
	RopeSlow  float64 // rotations below which a frequency is divided by RopeScale
	RopeTrain int     // positions before the context was extended; else Context
	RopeMag   float64 // magnitude of rotated vectors; 1 means none. YaRN's own is multiplied with it
	RopeLocal float64 // frequency base of the second kind of rotation, which is never scaled; 0 if Ropes is 1

	Experts     int  // 0: no mixture of experts
	ExpertsUsed int  // experts per token, the ones with the largest router logits
	ExpertFFN   int  // width of one expert
	ExpertNorm  bool // the weights of the used experts are normalised to the sum 1

	ExpertSigmoid bool    // weights are sigmoids of the router's logits, else their softmax
	ExpertScale   float32 // weights are multiplied by this; 0 means none
	SharedFFN     int     // width of the expert that each token has beside the chosen ones; 0: none
	DenseLayers   int     // the first so many layers have a feed-forward layer of width FFN instead of experts

	GELU         bool    // the feed-forward layer has GELU (tanh form; in an encoder the exact one, without a gate), else SiLU
	ClampedGate  bool    // act(gate)·up is gate·sigmoid(1.702·gate)·(up+1), gate at most 7, up from -7 to 7
	EmbedScale   float32 // embeddings are multiplied by this; 1 means none
	AttnScale    float32 // query · key is multiplied by this
	AttnSoftcap  float32 // c·tanh(x/c) of the scaled products, before the mask; 0 means none
	LogitSoftcap float32 // the same for logits

	Image Image `json:",omitzero"` // how it sees images; zero: it reads none
}

// maxSize bounds every hyperparameter, so that products of two never overflow.
const maxSize = 1 << 30

// ReadConfig reads the shape from the metadata and checks that it is consistent. It uses tensors only for the size of
// the vocabulary.
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

// Shape returns the width of a layer's heads, and the number of its key and value heads.
func (c *Config) Shape(layer int) (headDim, kvHeads int) {
	if c.LocalHeadDim > 0 && c.windowed(layer) {
		return c.LocalHeadDim, c.LocalKVHeads
	}
	return c.HeadDim, c.KVHeads
}

// width returns the width of a layer's feed-forward layer.
func (c *Config) width(layer int) int {
	if c.OwnFFN > 0 && layer < c.Layers-c.SharedKV {
		return c.OwnFFN
	}
	return c.FFN
}

// source returns the layer whose keys and values a layer uses.
func (c *Config) source(layer int) int {
	at := layer
	if own := c.Layers - c.SharedKV; at >= own {
		for at = own - 1; c.windowed(at) != c.windowed(layer); at-- {
		}
	}
	return at
}

// Delta reports whether a layer has a gated delta net instead of attention.
func (c *Config) Delta(layer int) bool { return c.DeltaHeads > 0 && (layer+1)%c.GlobalEvery != 0 }

// Stateful reports whether a sequence has a state, which each token changes in place, besides keys and values. So nothing of it
// can be used for another sequence, or from an earlier position on.
func (c Config) Stateful() bool { return c.DeltaHeads > 0 }

// Plain reports whether all layers are of one shape and attend to the past. Only such models take adapters and are divided among
// processes.
func (c Config) Plain() bool { return !c.Encoder && c.LocalHeadDim == 0 && !c.Stateful() }

// DeltaChannels returns the number of values that a delta net's convolution has for each position: queries, keys and values.
func (c *Config) DeltaChannels() int { return (2*c.DeltaKeys + c.DeltaHeads) * c.DeltaDim }

// windowed reports whether a layer has a sliding window.
func (c *Config) windowed(layer int) bool {
	return c.Window > 0 && (c.GlobalEvery == 0 || (layer+1)%c.GlobalEvery != 0)
}
