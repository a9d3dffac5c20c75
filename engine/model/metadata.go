package model

import (
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
)

type metadata struct {
	file *gguf.File
	arch string
	err  error

	varies bool // lists of different numbers are read by perLayer; size returns the first
}

func (m *metadata) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

func (m *metadata) has(name string) bool {
	_, _, _, ok := m.file.Kind(m.arch + "." + name)
	return ok
}

// size reads a positive number. or is for an absent key; 0: it is required. A file may list one per layer, all equal,
// or 0 where a layer has none.
func (m *metadata) size(name string, or int) int {
	key := m.arch + "." + name
	n, ok := m.file.Uint(key)
	all, _ := m.file.Ints(key)
	if all = slices.DeleteFunc(slices.Clone(all), func(x int32) bool { return x == 0 }); len(all) > 0 {
		n, ok = uint64(max(all[0], 0)), true
		for _, x := range all {
			if x != all[0] && !m.varies {
				m.fail("%s differs between layers (%d and %d): such models are not supported", key, all[0], x)
			}
		}
	}
	switch present := m.has(name); {
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

// perLayer reads a list, or one number for all.
func (m *metadata) perLayer(name string, c *Config) []int {
	out := slices.Repeat([]int{m.size(name, 0)}, c.Layers)
	all, _ := m.file.Ints(m.arch + "." + name)
	for i, x := range all[:min(len(all), c.Layers)] {
		out[i] = int(max(1, min(x, maxSize)))
	}
	return out
}

// count reads a number that may be 0, the default.
func (m *metadata) count(name string) int {
	if n, ok := m.file.Uint(m.arch + "." + name); ok && n == 0 || !m.has(name) {
		return 0
	}
	return m.size(name, 0)
}

// float reads a number. or is for an absent key; 0: it is required.
func (m *metadata) float(name string, or float64) float64 {
	key := m.arch + "." + name
	x, ok := m.file.Float(key)
	switch {
	case ok:
		return x
	case m.has(name):
		m.fail("%s must be a floating-point number, and is not", key)
	case or == 0:
		m.fail("%s is missing", key)
	}
	return or
}

func (m *metadata) number(name string, or float32) float32 {
	if !m.has(name) {
		return or
	}
	return float32(m.float(name, 0))
}

func (m *metadata) norm(c *Config, encoder bool) {
	if !encoder {
		c.RMSEps = float32(m.float("attention.layer_norm_rms_epsilon", 0))
		return
	}
	c.Encoder, c.RMSEps = true, float32(m.float("attention.layer_norm_epsilon", 0))
	if causal, ok := m.file.Bool(m.arch + ".attention.causal"); m.has("attention.causal") && (causal || !ok) {
		m.fail("%s.attention.causal is not false: such models are not supported", m.arch)
	}
	const rank = 4 // llama.cpp's LLAMA_POOLING_TYPE_RANK
	kind, ok := m.file.Uint(m.arch + ".pooling_type")
	if m.has("pooling_type") && !ok || kind > rank {
		m.fail("%s.pooling_type is not known: want 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank)", m.arch)
	}
	if kind != rank {
		return
	}
	c.Ranks = true
	if t, ok := m.file.Tensor(nameTypes); ok && len(t.Dims) == 2 && t.Dims[1] > 1 {
		const key = "tokenizer.ggml.seperator_token_id" // GGUF's spelling
		id, ok := m.file.Uint(key)
		if !ok {
			m.fail("%s is missing: it parts the texts of a pair", key)
		}
		c.Pair = int32(min(id, maxSize))
	}
}

func (m *metadata) headDim(c Config) int {
	if !m.has("attention.key_length") && c.Dim%c.Heads != 0 {
		m.fail("embedding_length %d is not a multiple of attention.head_count %d, and attention.key_length is missing", c.Dim, c.Heads)
	}
	k := m.size("attention.key_length", max(c.Dim/c.Heads, 1))
	if v := m.size("attention.value_length", k); v != k {
		m.fail("attention.value_length %d differs from attention.key_length %d: such models are not supported", v, k)
	}
	return k
}

// Load reads Llama 3's and LongRoPE's tensors.
func (m *metadata) rope(c *Config, long bool) {
	c.RopeBase = m.float("rope.freq_base", 10000)
	c.RopeDim = m.size("rope.dimension_count", c.HeadDim)
	c.RopeTrain = c.Context
	if n := m.count("rope.scaling.original_context_length"); n > 0 {
		c.RopeTrain = n
	}
	c.RopeMag = float64(m.number("rope.scaling.attn_factor", 1))
	kind, ok := m.file.String(m.arch + ".rope.scaling.type")
	if !ok {
		kind = "linear" // llama.cpp's default, with the older key scale_linear
	}
	c.RopeScale = 1
	switch kind {
	case "none":
		return
	case "linear":
	case "longrope":
		if !long {
			m.fail("%s.rope.scaling.type longrope is not supported for this architecture", m.arch)
		}
	case "yarn":
		c.RopeYaRN = true
		c.RopeFast = float64(m.number("rope.scaling.yarn_beta_fast", m.number("rope.scaling.beta_fast", 32)))
		c.RopeSlow = float64(m.number("rope.scaling.yarn_beta_slow", m.number("rope.scaling.beta_slow", 1)))
		if x := m.number("rope.scaling.yarn_log_multiplier", 0); x != 0 {
			m.fail("%s.rope.scaling.yarn_log_multiplier is %v: such models are not supported", m.arch, x)
		}
	default:
		m.fail("%s.rope.scaling.type %q is not supported; supported are none, linear, yarn and longrope", m.arch, kind)
	}
	c.RopeScale = m.float("rope.scaling.factor", m.float("rope.scale_linear", 1))
	if c.RopeScale == 0 { // some converters write 0 for "not set"
		c.RopeScale = 1
	}
}

func (m *metadata) feedForward(c *Config, experts presence) {
	c.Experts = m.count("expert_count")
	switch {
	case c.Experts > 0 && experts == never:
		m.fail("%s.expert_count is %d: such models are not supported", m.arch, c.Experts)
		return
	case c.Experts == 0 && experts == always:
		m.fail("%s.expert_count is missing", m.arch)
		return
	case c.Experts == 0:
		c.FFN = m.size("feed_forward_length", 0)
		return
	}
	c.ExpertsUsed = m.size("expert_used_count", 0)
	c.ExpertNorm = true
	switch {
	case m.has("expert_feed_forward_length"):
		c.ExpertFFN = m.size("expert_feed_forward_length", 0)
	case experts == always: // older files give the used experts' total
		c.ExpertFFN = max(m.size("feed_forward_length", 0)/c.ExpertsUsed, 1)
	default:
		c.ExpertFFN = m.size("feed_forward_length", 0)
	}
}

func (m *metadata) trunk(c *Config) { c.Layers = max(c.Layers-m.count("nextn_predict_layers"), 1) }

// window returns 0 if it covers all positions.
func (m *metadata) window(c *Config, or int) int {
	n := or
	if m.has("attention.sliding_window") {
		n = m.count("attention.sliding_window")
	}
	if n >= c.Context {
		return 0
	}
	return n
}

// pattern returns n if every n-th layer has no window. The key holds n, or whether each layer has one.
func (m *metadata) pattern(or int) int {
	const name = "attention.sliding_window_pattern"
	key := m.arch + "." + name
	if !m.has(name) {
		return or
	}
	layers, ok := m.file.Bools(key)
	if !ok {
		return m.size(name, 0)
	}
	n := slices.Index(layers, false) + 1
	for i, windowed := range layers {
		if windowed != (n == 0 || (i+1)%n != 0) {
			m.fail("%s is no repeated pattern (layer %d): such models are not supported", key, i)
			break
		}
	}
	return n
}

func (m *metadata) refuse(a architecture) {
	names := []string{"expert_group_count"}
	if !a.windows {
		names = append(names, "attention.sliding_window")
	}
	if !a.shared {
		names = append(names, "expert_shared_count", "leading_dense_block_count")
	}
	for _, name := range names {
		if n, ok := m.file.Uint(m.arch + "." + name); ok && n > 0 && !(n == 1 && name == names[0]) { // one group is none
			m.fail("%s.%s is %d: such models are not supported", m.arch, name, n)
		}
	}
}
