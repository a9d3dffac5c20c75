package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// The references are llama.cpp's graphs (src/models) and the authors' code.
type architecture struct {
	neox     bool     // RoPE pairs are halves of the head
	qkvBias  bool     // of attention projections, required
	qkNorm   presence // of heads of queries and keys
	postNorm bool     // of the outputs of attention and feed-forward layer
	fused    bool     // Q, K and V are one tensor
	fusedUp  bool     // Gate and Up are one tensor
	factors  bool     // may have rope_factors_long and rope_factors_short
	windows  bool     // layers may have a sliding window
	experts  presence
	shared   bool                     // some layers have no experts, and tokens may have a shared one
	guesses  bool                     // layers after the last may guess further tokens; not used
	biases   bool                     // of router, experts and attention's output; heads have sinks
	varies   bool                     // heads and widths may differ between layers
	ffnNorm  string                   // norm before the feed-forward layer; "": ffn_norm
	encoder  bool                     // as BERT: LayerNorm follows each half of a block
	read     func(*metadata, *Config) // metadata beyond the common keys
	skip     []string                 // prefixes of tensors that text does not need
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
	"qwen3":      {neox: true, qkNorm: always},
	"qwen3moe":   {neox: true, qkNorm: always, experts: always},
	"qwen35":     {neox: true, qkNorm: always, guesses: true, ffnNorm: "post_attention_norm", read: readQwen35, skip: []string{"v.", "mm.", "mtp."}},
	"gpt-oss":    {neox: true, qkvBias: true, windows: true, experts: always, biases: true, ffnNorm: "post_attention_norm", read: readGPTOSS},
	"glm4":       {postNorm: true, fusedUp: true, read: readGLM4},
	"glm4moe":    {neox: true, qkNorm: sometimes, experts: always, shared: true, guesses: true, ffnNorm: "post_attention_norm", read: readGLM4MoE},
	"gemma":      {neox: true, read: readGemma},
	"gemma2":     {neox: true, windows: true, postNorm: true, read: readGemma2},
	"gemma3":     {neox: true, windows: true, postNorm: true, qkNorm: always, read: readGemma3, skip: []string{"v.", "mm."}},
	"gemma4":     {neox: true, windows: true, postNorm: true, qkNorm: always, experts: sometimes, varies: true, read: readGemma4, skip: []string{"v.", "mm.", "a."}},
	"bert":       {encoder: true, read: readBERT},
	"nomic-bert": {encoder: true, neox: true, fused: true, fusedUp: true},
	"phi3":       {neox: true, fused: true, fusedUp: true, factors: true, windows: true, read: readPhi3},
}

// Architectures returns GGUF's names of what is supported.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// Some of Mistral's models have a window in all layers.
func readLlama(m *metadata, c *Config) { c.Window = m.window(c, 0) }

// Every fourth layer has attention, the others a gated delta net. The rotation's sections are for images.
func readQwen35(m *metadata, c *Config) {
	m.trunk(c)
	c.GlobalEvery = m.size("full_attention_interval", 4)
	c.DeltaHeads, c.DeltaKeys = m.size("ssm.time_step_rank", 0), m.size("ssm.group_count", 0)
	c.DeltaDim, c.DeltaConv = m.size("ssm.state_size", 0), m.size("ssm.conv_kernel", 0)
	if inner := m.size("ssm.inner_size", 0); inner != c.DeltaHeads*c.DeltaDim || c.DeltaHeads%c.DeltaKeys != 0 {
		m.fail("%s.ssm.inner_size is %d, with %d heads of width %d on %d heads of keys: want the product, and a multiple", m.arch, inner, c.DeltaHeads, c.DeltaDim, c.DeltaKeys)
	}
	const tiled = ".ssm.v_head_reordered" // Ollama's; llama.cpp's files are always so
	if yes, said := m.file.Bool(m.arch + tiled); said && !yes {
		m.fail("%s%s is false: such models are not supported", m.arch, tiled)
	}
	if c.GlobalEvery < 2 || c.GlobalEvery > c.Layers {
		m.fail("%s.full_attention_interval is %d of %d layers: models with layers of one kind only are not supported", m.arch, c.GlobalEvery, c.Layers)
	}
	listed, _ := m.file.Bools(m.arch + ".attention.recurrent_layers")
	for i, delta := range listed[:min(len(listed), c.Layers)] {
		if delta != c.Delta(i) {
			m.fail("%s.attention.recurrent_layers has another pattern than each %d layers (layer %d): such models are not supported", m.arch, c.GlobalEvery, i)
		}
	}
}

// The converter adds the 1 to norm weights that the authors' code adds.
func readGemma(_ *metadata, c *Config) {
	c.GELU = true
	c.EmbedScale = float32(math.Sqrt(float64(c.Dim)))
}

// Every other layer has a window.
func readGemma2(m *metadata, c *Config) {
	readGemma(m, c)
	c.Window, c.GlobalEvery = m.window(c, 4096), 2
	c.AttnSoftcap = m.number("attn_logit_softcapping", 50)
	c.LogitSoftcap = m.number("final_logit_softcapping", 30)
	c.largest(46)
}

// Five layers with a window and their own rotation, then one without.
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

// Layers with a window have heads of another shape. The last layers may use earlier keys and values, and be wider.
func readGemma4(m *metadata, c *Config) {
	readGemma(m, c)
	c.AttnScale = 1
	c.LogitSoftcap = m.number("final_logit_softcapping", 30)
	c.Window, c.GlobalEvery = m.window(c, 0), m.pattern(6)
	if c.Window == 0 || c.GlobalEvery == 0 || c.GlobalEvery > c.Layers {
		m.fail("%s has layers of one kind only, by attention.sliding_window and its pattern: such models are not supported", m.arch)
		return
	}
	c.Ropes, c.RopeLocal = 2, float64(m.number("rope.freq_base_swa", 10000))
	c.LocalHeadDim = m.size("attention.key_length_swa", c.HeadDim)
	c.LocalRopeDim = m.size("rope.dimension_count_swa", c.LocalHeadDim)
	if all := len(m.file.Tensors()); c.Layers > all {
		m.fail("%s.block_count is %d and the file has %d tensors", m.arch, c.Layers, all)
		return
	}
	c.SharedKV, c.LayerInput = m.count("attention.shared_kv_layers"), m.count("embedding_length_per_layer_input")
	if c.Layers-c.SharedKV < c.GlobalEvery {
		m.fail("%s.attention.shared_kv_layers is %d of %d: want at least %d layers with keys and values of their own", m.arch, c.SharedKV, c.Layers, c.GlobalEvery)
		return
	}
	if c.Experts > 0 {
		c.SharedFFN = m.size("feed_forward_length", 0)
	}
	global := c.GlobalEvery - 1
	heads, widths := m.perLayer("attention.head_count_kv", c), m.perLayer("feed_forward_length", c)
	c.KVHeads, c.LocalKVHeads, c.FFN, c.OwnFFN = heads[global], heads[0], widths[c.Layers-1], widths[0]
	for i := range heads {
		if _, kv := c.Shape(i); heads[i] != kv || widths[i] != c.width(i) {
			m.fail("%s has layers of other shapes than its pattern says (layer %d): such models are not supported", m.arch, i)
			return
		}
	}
}

// largest sets the 27B models' attention scale. There is no key for it but the number of layers.
func (c *Config) largest(layers int) {
	if c.Layers == layers {
		c.AttnScale = float32(1 / math.Sqrt(float64(c.Dim/c.Heads)))
	}
}

// Every other layer has a window.
func readGPTOSS(m *metadata, c *Config) {
	c.Window, c.GlobalEvery = m.window(c, 128), m.pattern(2)
	c.ClampedGate = true
	if base := m.number("rope.freq_base_swa", 0); base != 0 && float64(base) != c.RopeBase {
		m.fail("%s.rope.freq_base_swa is %v and rope.freq_base %v: such models are not supported", m.arch, base, c.RopeBase)
	}
}

// Models of images and texts rotate other pairs.
func readGLM4(m *metadata, _ *Config) {
	if m.has("rope.dimension_sections") {
		m.fail("%s.rope.dimension_sections is there: models that see images are not supported", m.arch)
	}
}

// The first layers have no experts. Experts are chosen by sigmoids, as in DeepSeek V3.
func readGLM4MoE(m *metadata, c *Config) {
	m.trunk(c)
	if c.DenseLayers = min(m.count("leading_dense_block_count"), c.Layers); c.DenseLayers > 0 {
		c.FFN = m.size("feed_forward_length", 0)
	}
	c.SharedFFN = m.count("expert_shared_count") * c.ExpertFFN
	c.ExpertNorm, _ = m.file.Bool(m.arch + ".expert_weights_norm")
	c.ExpertScale = m.number("expert_weights_scale", 0)
	const softmax, sigmoid = 1, 2 // llama.cpp's LLAMA_EXPERT_GATING_FUNC_TYPE_…
	gate := cmp.Or(m.count("expert_gating_func"), sigmoid)
	if c.ExpertSigmoid = gate == sigmoid; gate > sigmoid {
		m.fail("%s.expert_gating_func is %d: want %d (softmax) or %d (sigmoid)", m.arch, gate, softmax, sigmoid)
	}
}

// Positions are learned, and the feed-forward layer has no gate.
func readBERT(_ *metadata, c *Config) { c.GELU, c.RopeDim = true, 0 }

func readPhi3(m *metadata, c *Config) { c.Window = m.window(c, 0) }
