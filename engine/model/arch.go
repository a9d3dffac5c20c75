package model

import (
	"maps"
	"math"
	"slices"
)

// architecture describes the differences between families of models. The references for the computation are llama.cpp's
// graphs (src/models) and the authors' code.
type architecture struct {
	neox     bool // RoPE pairs are halves of the head
	qkvBias  bool // attention projections must have biases
	qkNorm   bool // heads of queries and keys are normed
	postNorm bool // the outputs of attention and feed-forward layer are normed
	fused    bool // Q, K and V are one tensor, and so are Gate and Up
	factors  bool // may have rope_factors_long and rope_factors_short
	windows  bool // layers may have a sliding window
	experts  presence
	encoder  bool                     // as BERT: tokens see all others, and LayerNorm follows each half of a block
	read     func(*metadata, *Config) // reads metadata beyond the common keys
	skip     []string                 // prefixes of tensors that text alone does not need
}

type presence int

const (
	never presence = iota
	sometimes
	always
)

var architectures = map[string]architecture{
	"llama":      {windows: true, experts: sometimes, read: readLlama},
	"qwen2":      {neox: true, qkvBias: true},
	"qwen3":      {neox: true, qkNorm: true},
	"qwen3moe":   {neox: true, qkNorm: true, experts: always},
	"gemma":      {neox: true, read: readGemma},
	"gemma2":     {neox: true, windows: true, postNorm: true, read: readGemma2},
	"gemma3":     {neox: true, windows: true, postNorm: true, qkNorm: true, read: readGemma3, skip: []string{"v.", "mm."}},
	"bert":       {encoder: true, read: readBERT},
	"nomic-bert": {encoder: true, neox: true, fused: true},
	"phi3":       {neox: true, fused: true, factors: true, windows: true, read: readPhi3},
}

// Architectures returns the supported architectures by their names in GGUF, where Mistral's and Mixtral's models are
// llama.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// readLlama: some of Mistral's models have a window in all layers.
func readLlama(m *metadata, c *Config) { c.Window = m.window(c, 0) }

// readGemma sets what the whole family shares. The converter already adds the 1 to norm weights that the authors' code
// adds at run time.
func readGemma(_ *metadata, c *Config) {
	c.GELU = true
	c.EmbedScale = float32(math.Sqrt(float64(c.Dim)))
}

// readGemma2: soft caps, and every other layer has a window.
func readGemma2(m *metadata, c *Config) {
	readGemma(m, c)
	c.Window, c.GlobalEvery = m.window(c, 4096), 2
	c.AttnSoftcap = m.number("attn_logit_softcapping", 50)
	c.LogitSoftcap = m.number("final_logit_softcapping", 30)
	c.largest(46)
}

// readGemma3: five layers with a window and their own rotation, then one without.
func readGemma3(m *metadata, c *Config) {
	readGemma(m, c)
	c.LogitSoftcap = m.number("final_logit_softcapping", 0)
	if c.Window = m.window(c, 0); c.Window > 0 {
		c.GlobalEvery = m.pattern(6)
		c.Ropes = 2
		c.RopeLocal = float64(m.number("rope.local.freq_base", m.number("rope.freq_base_swa", 10000)))
	}
	c.largest(62)
}

// largest sets the attention scale of the 27B models of Gemma 2 and 3, which derives from Dim/Heads instead of
// HeadDim. There is no key for it, so the number of layers decides.
func (c *Config) largest(layers int) {
	if c.Layers == layers {
		c.AttnScale = float32(1 / math.Sqrt(float64(c.Dim/c.Heads)))
	}
}

// readBERT: positions are learned, and the feed-forward layer has no gate.
func readBERT(_ *metadata, c *Config) { c.GELU, c.RopeDim = true, 0 }

// readPhi3: the window, in models that have one, is in all layers.
func readPhi3(m *metadata, c *Config) { c.Window = m.window(c, 0) }
