package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/gguf"
)

const (
	nameEmbed  = "token_embd.weight"
	nameOutput = "output.weight"
	nameRope   = "rope_freqs.weight"
	nameTypes  = "token_types.weight"

	nameRopeShort = "rope_factors_short.weight"
	nameRopeLong  = "rope_factors_long.weight"
)

// Load fails with the name of a key or tensor and what was expected. The model is valid until f closes.
func Load(f *gguf.File) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	l := &loader{file: f, used: make(map[string]bool)}
	m := l.model(c)
	l.leftovers(c)
	if l.err != nil {
		return nil, fmt.Errorf("load %s model: %w", c.Arch, l.err)
	}
	return m, nil
}

// loader keeps the first error.
type loader struct {
	file *gguf.File
	used map[string]bool
	err  error
}

func (l *loader) model(c Config) *Model {
	m := &Model{Config: c}
	m.Embed = l.matrix(nameEmbed, c.Vocab, c.Dim)
	m.Output = m.Embed
	if c.Encoder {
		l.encoder(m)
	} else {
		m.OutputNorm = l.vector("output_norm.weight", c.Dim, true)
	}
	if _, ok := l.file.Tensor(nameOutput); ok {
		m.Output = l.matrix(nameOutput, c.Vocab, c.Dim)
	}
	if n := c.LayerInput; n > 0 {
		m.InputEmbed = l.matrix("per_layer_token_embd.weight", c.Vocab, c.Layers*n)
		m.InputProj = l.matrix("per_layer_model_proj.weight", c.Layers*n, c.Dim)
		m.InputNorm = l.vector("per_layer_proj_norm.weight", n, true)
	}
	m.RopeFactors = l.factors(nameRope, c, architectures[c.Arch].varies)
	if architectures[c.Arch].factors {
		m.ropeShort, m.ropeLong = l.factors(nameRopeShort, c, false), l.factors(nameRopeLong, c, false)
		if l.err == nil && (m.ropeShort == nil) != (m.ropeLong == nil) {
			l.err = fmt.Errorf("tensors %q and %q go together, and one is missing", nameRopeShort, nameRopeLong)
		}
	}
	// The file may lie about their number.
	for i := 0; i < c.Layers && l.err == nil; i++ {
		m.Layers = append(m.Layers, l.layer(c, i))
	}
	if l.err == nil {
		m.makeRopes()
	}
	return m
}

func (l *loader) encoder(m *Model) {
	c := &m.Config
	if c.RopeDim == 0 {
		m.Positions = l.vector("position_embd.weight", c.Dim, true, c.Context)
	}
	if t, ok := l.file.Tensor(nameTypes); ok && len(t.Dims) == 2 {
		m.Types = l.vector(nameTypes, c.Dim, true, t.Dims[1])
	}
	m.OutputNorm, m.OutputNormBias = l.norm(outputNorm(c.Layers-1), c.Dim)
	if !c.Ranks {
		return
	}
	if _, ok := l.file.Tensor("cls.weight"); ok {
		m.Class, m.ClassBias = l.vector("cls.weight", c.Dim, true, c.Dim), l.vector("cls.bias", c.Dim, true)
	}
	m.Score, m.ScoreBias = l.vector("cls.output.weight", c.Dim, true, 1), l.vector("cls.output.bias", 1, true)
}

func (l *loader) norm(name string, n int) (weight, bias []float32) {
	return l.vector(name+".weight", n, true), l.vector(name+".bias", n, true)
}

// outputNorm names the norm after a block, or the embeddings.
func outputNorm(layer int) string {
	if layer < 0 {
		return "token_embd_norm"
	}
	return fmt.Sprintf("blk.%d.layer_output_norm", layer)
}

func (l *loader) factors(name string, c Config, required bool) []float32 {
	f := l.vector(name, c.RopeDim/2, required)
	for _, x := range f {
		if (!(x > 0) || math.IsInf(float64(x), 0)) && l.err == nil {
			l.err = fmt.Errorf("tensor %q holds %v, want positive factors", name, x)
		}
	}
	return f
}

func (l *loader) layer(c Config, i int) Layer {
	name := func(part string) string { return fmt.Sprintf("blk.%d.%s", i, part) }
	a := architectures[c.Arch]
	head, kvHeads := c.Shape(i)
	q, kv := c.Heads*head, kvHeads*head
	y := Layer{Source: c.source(i)}
	if a.encoder {
		y.AttnNorm, y.AttnNormBias = l.norm(outputNorm(i-1), c.Dim)
		y.FFNNorm, y.FFNNormBias = l.norm(name("attn_output_norm"), c.Dim)
	} else {
		y.AttnNorm = l.vector(name("attn_norm.weight"), c.Dim, true)
		y.FFNNorm = l.vector(name(cmp.Or(a.ffnNorm, "ffn_norm")+".weight"), c.Dim, true)
	}
	if c.Delta(i) {
		l.delta(&y, c, name)
		l.feedForward(&y, c, name)
		return y
	}
	y.O = l.matrix(name("attn_output.weight"), c.Dim, q)
	y.OBias = l.vector(name("attn_output.bias"), c.Dim, a.biases)
	if a.biases {
		y.Sinks = l.vector(name("attn_sinks.weight"), c.Heads, true)
	}
	if a.fused {
		qkv := l.matrix(name("attn_qkv.weight"), q+2*kv, c.Dim)
		y.Q, y.K, y.V = qkv.slice(0, q), qkv.slice(q, q+kv), qkv.slice(q+kv, q+2*kv)
	} else {
		if y.Gated = c.DeltaHeads > 0; y.Gated {
			q *= 2
		}
		y.Q = l.matrix(name("attn_q.weight"), q, c.Dim)
		if y.Source == i {
			y.K = l.matrix(name("attn_k.weight"), kv, c.Dim)
		}
		if y.Source == i && (!a.varies || l.has(name("attn_v.weight"))) {
			y.V = l.matrix(name("attn_v.weight"), kv, c.Dim)
		}
		y.QBias = l.vector(name("attn_q.bias"), q, a.qkvBias)
		y.KBias = l.vector(name("attn_k.bias"), kv, a.qkvBias)
		y.VBias = l.vector(name("attn_v.bias"), kv, a.qkvBias)
	}
	if a.qkNorm != never {
		y.QNorm = l.vector(name("attn_q_norm.weight"), head, a.qkNorm == always)
		if y.Source == i {
			y.KNorm = l.vector(name("attn_k_norm.weight"), head, y.QNorm != nil)
		}
	}
	if a.varies {
		l.varying(&y, c, name)
	}
	if a.postNorm {
		y.AttnPostNorm = l.vector(name("post_attention_norm.weight"), c.Dim, true)
		y.FFNPostNorm = l.vector(name("post_ffw_norm.weight"), c.Dim, true)
	}
	if c.windowed(i) {
		y.Window, y.Rope = c.Window, c.Ropes-1
	}
	if c.Experts == 0 || i < c.DenseLayers {
		c.FFN = c.width(i)
		l.feedForward(&y, c, name)
	} else {
		l.mixture(&y, c, name)
	}
	return y
}

func (l *loader) delta(y *Layer, c Config, name func(string) string) {
	values := c.DeltaHeads * c.DeltaDim
	y.Q = l.matrix(name("attn_qkv.weight"), c.DeltaChannels(), c.Dim)
	y.DeltaGate = l.matrix(name("attn_gate.weight"), values, c.Dim)
	y.Alpha = l.matrix(name("ssm_alpha.weight"), c.DeltaHeads, c.Dim)
	y.Beta = l.matrix(name("ssm_beta.weight"), c.DeltaHeads, c.Dim)
	y.O = l.matrix(name("ssm_out.weight"), c.Dim, values)
	y.Conv = l.vector(name("ssm_conv1d.weight"), c.DeltaConv, true, c.DeltaChannels())
	y.Decay = l.vector(name("ssm_a"), c.DeltaHeads, true)
	bias := name("ssm_dt.bias")
	if other := name("ssm_dt"); l.has(other) { // Ollama's
		bias = other
	}
	y.DecayBias = l.vector(bias, c.DeltaHeads, true)
	y.DeltaNorm = l.vector(name("ssm_norm.weight"), c.DeltaDim, true)
}

func (l *loader) varying(y *Layer, c Config, name func(string) string) {
	y.NormsValues = true
	if scale := l.vector(name("layer_output_scale.weight"), 1, false); scale != nil {
		y.Scale = scale[0]
	}
	if c.LayerInput > 0 {
		y.InputGate = l.matrix(name("inp_gate.weight"), c.LayerInput, c.Dim)
		y.InputDown = l.matrix(name("proj.weight"), c.Dim, c.LayerInput)
		y.InputNorm = l.vector(name("post_norm.weight"), c.Dim, true)
	}
}

func (l *loader) feedForward(y *Layer, c Config, name func(string) string) {
	switch {
	case c.Encoder:
		y.Up, y.UpBias = l.matrix(name("ffn_up.weight"), c.FFN, c.Dim), l.vector(name("ffn_up.bias"), c.FFN, false)
		if !c.GELU {
			y.Gate = l.matrix(name("ffn_gate.weight"), c.FFN, c.Dim)
		}
		y.DownBias = l.vector(name("ffn_down.bias"), c.Dim, false)
	case architectures[c.Arch].fusedUp:
		both := l.matrix(name("ffn_up.weight"), 2*c.FFN, c.Dim)
		y.Gate, y.Up = both.slice(0, c.FFN), both.slice(c.FFN, 2*c.FFN)
	default:
		y.Gate = l.matrix(name("ffn_gate.weight"), c.FFN, c.Dim)
		y.Up = l.matrix(name("ffn_up.weight"), c.FFN, c.Dim)
	}
	y.Down = l.matrix(name("ffn_down.weight"), c.Dim, c.FFN)
}

func (l *loader) mixture(y *Layer, c Config, name func(string) string) {
	a := architectures[c.Arch]
	y.Router = l.matrix(name("ffn_gate_inp.weight"), c.Experts, c.Dim)
	if both := name("ffn_gate_up_exps.weight"); a.varies && l.has(both) {
		for _, m := range l.experts(both, c.Experts, 2*c.ExpertFFN, c.Dim) {
			y.ExpertGate = append(y.ExpertGate, m.slice(0, c.ExpertFFN))
			y.ExpertUp = append(y.ExpertUp, m.slice(c.ExpertFFN, 2*c.ExpertFFN))
		}
	} else {
		y.ExpertGate = l.experts(name("ffn_gate_exps.weight"), c.Experts, c.ExpertFFN, c.Dim)
		y.ExpertUp = l.experts(name("ffn_up_exps.weight"), c.Experts, c.ExpertFFN, c.Dim)
	}
	y.ExpertDown = l.experts(name("ffn_down_exps.weight"), c.Experts, c.Dim, c.ExpertFFN)
	if a.biases {
		y.RouterBias = l.vector(name("ffn_gate_inp.bias"), c.Experts, true)
		y.ExpertGateBias = l.vector(name("ffn_gate_exps.bias"), c.ExpertFFN, true, c.Experts)
		y.ExpertUpBias = l.vector(name("ffn_up_exps.bias"), c.ExpertFFN, true, c.Experts)
		y.ExpertDownBias = l.vector(name("ffn_down_exps.bias"), c.Dim, true, c.Experts)
	}
	if a.shared {
		y.Choice = l.vector(name("exp_probs_b.bias"), c.Experts, false)
	}
	if a.varies {
		c.FFN = c.SharedFFN
		l.feedForward(y, c, name)
		y.RouterNorm = slices.Clone(l.vector(name("ffn_gate_inp.scale"), c.Dim, true))
		for i := range y.RouterNorm {
			y.RouterNorm[i] /= float32(math.Sqrt(float64(c.Dim)))
		}
		y.ExpertNorm = l.vector(name("pre_ffw_norm_2.weight"), c.Dim, true)
		y.SharedPostNorm = l.vector(name("post_ffw_norm_1.weight"), c.Dim, true)
		y.ExpertPostNorm = l.vector(name("post_ffw_norm_2.weight"), c.Dim, true)
		y.ExpertWeights = l.vector(name("ffn_down_exps.scale"), c.Experts, false)
	} else if c.SharedFFN > 0 {
		y.Gate = l.matrix(name("ffn_gate_shexp.weight"), c.SharedFFN, c.Dim)
		y.Up = l.matrix(name("ffn_up_shexp.weight"), c.SharedFFN, c.Dim)
		y.Down = l.matrix(name("ffn_down_shexp.weight"), c.Dim, c.SharedFFN)
	}
}

// experts cuts a tensor of stacked matrices.
func (l *loader) experts(name string, n, rows, cols int) []Matrix {
	t, ok := l.take(name, true, cols, rows, n)
	if !ok {
		return nil
	}
	all := matrix(t, n*rows, cols)
	out := make([]Matrix, n)
	for i := range out {
		out[i] = all.slice(i*rows, (i+1)*rows)
	}
	return out
}

func (l *loader) has(name string) bool {
	_, ok := l.file.Tensor(name)
	return ok
}

func (l *loader) take(name string, required bool, dims ...int) (gguf.Tensor, bool) {
	t, ok := l.file.Tensor(name)
	if l.err != nil || !ok && !required {
		return t, false
	}
	if !ok {
		l.err = fmt.Errorf("tensor %q is missing", name)
		return t, false
	}
	l.used[name] = true
	if !slices.Equal(t.Dims, dims) {
		l.err = fmt.Errorf("tensor %q has dimensions %v, want %v", name, t.Dims, dims)
		return t, false
	}
	if !t.Type.Decodable() {
		l.err = fmt.Errorf("tensor %q has type %s, which is not supported: use a file in one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, IQ4_XS, MXFP4 or a K type, such as Q4_K_M", name, t.Type)
		return t, false
	}
	return t, true
}

func (l *loader) matrix(name string, rows, cols int) Matrix {
	t, ok := l.take(name, true, cols, rows)
	if !ok {
		return Matrix{}
	}
	return matrix(t, rows, cols)
}

// vector reads a vector, or rows of n.
func (l *loader) vector(name string, n int, required bool, rows ...int) []float32 {
	t, ok := l.take(name, required, append([]int{n}, rows...)...)
	if !ok {
		return nil
	}
	return floats(t)
}

// floats is a view of F32 on little-endian machines, else a copy.
func floats(t gguf.Tensor) []float32 {
	p := unsafe.Pointer(unsafe.SliceData(t.Data))
	little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	if t.Type == gguf.F32 && little && uintptr(p)%unsafe.Alignof(float32(0)) == 0 {
		return unsafe.Slice((*float32)(p), t.Len())
	}
	x, err := t.Floats()
	if err != nil {
		panic(err) // take admits decodable types
	}
	return x
}

// leftovers refuses unused tensors: such a model computes something else.
func (l *loader) leftovers(c Config) {
	if l.err != nil {
		return
	}
	a := architectures[c.Arch]
	skipped := func(name string) bool {
		var layer int
		if _, err := fmt.Sscanf(name, "blk.%d.", &layer); a.guesses && err == nil && layer >= c.Layers {
			return true // it guesses further tokens
		}
		return slices.ContainsFunc(a.skip, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	for _, t := range l.file.Tensors() {
		if !l.used[t.Name] && !skipped(t.Name) {
			l.err = fmt.Errorf("tensor %q has no place in this architecture: the model is a variant that is not supported", t.Name)
			return
		}
	}
}
