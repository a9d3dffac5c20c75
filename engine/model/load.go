package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/gguf"
)

const (
	nameEmbed  = "token_embd.weight"
	nameOutput = "output.weight"
	nameRope   = "rope_freqs.weight"
)

// Matrix is a weight matrix of Rows rows with Cols values each, so that it maps a vector
// of Cols to one of Rows. Data is the file's memory, row after row.
type Matrix struct {
	Rows, Cols int
	Type       gguf.Type // F32, F16, BF16 or Q8_0
	Data       []byte
	F32        []float32 // Data as numbers, only for type F32
}

// Layer holds the weights of one transformer block. Vectors are nil where the model has none. A
// block computes, with x the residual stream:
//
//  1. y = norm(x, AttnNorm); q, k, v = Q·y+QBias, K·y+KBias, V·y+VBias.
//  2. Each head of q is normed with QNorm, of k with KNorm; then both are rotated.
//  3. y = O·attention(q, k, v) + OBias, normed with AttnPostNorm; x += y.
//  4. y = norm(x, FFNNorm); y = Down·(act(Gate·y) · (Up·y)), normed with FFNPostNorm; x += y.
//
// In a mixture of experts Gate, Up and Down are empty, and step 4's y is the sum of the
// chosen experts' results, weighted by the softmax over Router·y.
type Layer struct {
	AttnNorm     []float32 // [Dim]
	Q            Matrix    // [Heads·HeadDim, Dim]
	K, V         Matrix    // [KVHeads·HeadDim, Dim]
	O            Matrix    // [Dim, Heads·HeadDim]
	QBias        []float32
	KBias        []float32
	VBias        []float32
	OBias        []float32
	QNorm, KNorm []float32 // [HeadDim], shared by all heads
	AttnPostNorm []float32 // [Dim]
	FFNNorm      []float32 // [Dim]
	FFNPostNorm  []float32 // [Dim]
	Gate, Up     Matrix    // [FFN, Dim]
	Down         Matrix    // [Dim, FFN]

	Router     Matrix   // [Experts, Dim]
	ExpertGate []Matrix // Experts × [ExpertFFN, Dim]
	ExpertUp   []Matrix // Experts × [ExpertFFN, Dim]
	ExpertDown []Matrix // Experts × [Dim, ExpertFFN]

	Window int // a query at position p sees p-Window+1 … p; 0 means all up to p
	Rope   int // which of Config.Ropes kinds of rotation
}

// Model is a loaded model. It is read only and refers to the file's memory.
type Model struct {
	Config      Config
	Embed       Matrix    // [Vocab, Dim]
	OutputNorm  []float32 // [Dim]
	Output      Matrix    // [Vocab, Dim]; Embed itself when the file ties them
	RopeFactors []float32 // [RopeDim/2] divisors of the frequencies; nil means all 1
	Layers      []Layer
}

// Load reads a model's shape and finds its weights. The error names the key or tensor
// and says what was expected. The model is valid until f closes.
func Load(f *gguf.File) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	l := &loader{file: f, used: make(map[string]bool)}
	m := l.model(c)
	l.leftovers()
	if l.err != nil {
		return nil, fmt.Errorf("load %s model: %w", c.Arch, l.err)
	}
	return m, nil
}

// loader takes tensors from a file and keeps the first error.
type loader struct {
	file *gguf.File
	used map[string]bool
	err  error
}

func (l *loader) model(c Config) *Model {
	m := &Model{Config: c}
	m.Embed = l.matrix(nameEmbed, c.Vocab, c.Dim)
	m.OutputNorm = l.vector("output_norm.weight", c.Dim, true)
	m.Output = m.Embed
	if _, ok := l.file.Tensor(nameOutput); ok {
		m.Output = l.matrix(nameOutput, c.Vocab, c.Dim)
	}
	m.RopeFactors = l.vector(nameRope, c.RopeDim/2, false)
	for _, x := range m.RopeFactors {
		if !(x > 0) && l.err == nil {
			l.err = fmt.Errorf("tensor %q holds %v, want positive factors", nameRope, x)
		}
	}
	// The number of layers comes from the file: stop at the first that is not there.
	for i := 0; i < c.Layers && l.err == nil; i++ {
		m.Layers = append(m.Layers, l.layer(c, i))
	}
	return m
}

func (l *loader) layer(c Config, i int) Layer {
	name := func(part string) string { return fmt.Sprintf("blk.%d.%s", i, part) }
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	bias := architectures[c.Arch].qkvBias
	return Layer{
		AttnNorm: l.vector(name("attn_norm.weight"), c.Dim, true),
		Q:        l.matrix(name("attn_q.weight"), q, c.Dim),
		K:        l.matrix(name("attn_k.weight"), kv, c.Dim),
		V:        l.matrix(name("attn_v.weight"), kv, c.Dim),
		O:        l.matrix(name("attn_output.weight"), c.Dim, q),
		QBias:    l.vector(name("attn_q.bias"), q, bias),
		KBias:    l.vector(name("attn_k.bias"), kv, bias),
		VBias:    l.vector(name("attn_v.bias"), kv, bias),
		OBias:    l.vector(name("attn_output.bias"), c.Dim, false),
		FFNNorm:  l.vector(name("ffn_norm.weight"), c.Dim, true),
		Gate:     l.matrix(name("ffn_gate.weight"), c.FFN, c.Dim),
		Up:       l.matrix(name("ffn_up.weight"), c.FFN, c.Dim),
		Down:     l.matrix(name("ffn_down.weight"), c.Dim, c.FFN),
	}
}

// take finds a tensor and checks its shape and type.
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
	switch t.Type {
	case gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0:
		return t, true
	default:
		l.err = fmt.Errorf("tensor %q has type %s; supported are F32, F16, BF16 and Q8_0: use a file in one of these", name, t.Type)
		return t, false
	}
}

func (l *loader) matrix(name string, rows, cols int) Matrix {
	t, ok := l.take(name, true, cols, rows)
	if !ok {
		return Matrix{}
	}
	m := Matrix{Rows: rows, Cols: cols, Type: t.Type, Data: t.Data}
	if t.Type == gguf.F32 {
		m.F32 = floats(t)
	}
	return m
}

func (l *loader) vector(name string, n int, required bool) []float32 {
	t, ok := l.take(name, required, n)
	if !ok {
		return nil
	}
	return floats(t)
}

// floats gives a tensor's numbers: a view of its memory for F32 on a little-endian
// machine, else a decoded copy.
func floats(t gguf.Tensor) []float32 {
	p := unsafe.Pointer(unsafe.SliceData(t.Data))
	little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	if t.Type == gguf.F32 && little && uintptr(p)%unsafe.Alignof(float32(0)) == 0 {
		return unsafe.Slice((*float32)(p), t.Len())
	}
	x, err := t.Floats()
	if err != nil {
		panic(err) // take admits only types that can be decoded
	}
	return x
}

// Rope fills cos and sin, [RopeDim/2] each, with the rotation of kind (Layer.Rope) at
// position pos. Both hold the model's magnitude factor, where it has one.
func (m *Model) Rope(kind, pos int, cos, sin []float32) {
	c := &m.Config
	for i := range c.RopeDim / 2 {
		a := float64(pos) / c.RopeScale * math.Pow(c.RopeBase, -2*float64(i)/float64(c.RopeDim))
		if m.RopeFactors != nil {
			a /= float64(m.RopeFactors[i])
		}
		s, co := math.Sincos(a)
		cos[i], sin[i] = float32(co), float32(s)
	}
}

// leftovers refuses tensors that nothing uses: a model that has them computes something
// else than this package knows.
func (l *loader) leftovers() {
	if l.err != nil {
		return
	}
	for _, t := range l.file.Tensors() {
		if !l.used[t.Name] {
			l.err = fmt.Errorf("tensor %q has no place in this architecture: the model is a variant that is not supported", t.Name)
			return
		}
	}
}

// Bytes is the size of the model's weights in the file.
func (m *Model) Bytes() int64 {
	n := m.Embed.bytes() + int64(len(m.OutputNorm)+len(m.RopeFactors))*4
	if &m.Output.Data[0] != &m.Embed.Data[0] {
		n += m.Output.bytes()
	}
	for i := range m.Layers {
		l := &m.Layers[i]
		for _, x := range []Matrix{l.Q, l.K, l.V, l.O, l.Gate, l.Up, l.Down} {
			n += x.bytes()
		}
		for _, v := range [][]float32{l.AttnNorm, l.QBias, l.KBias, l.VBias, l.OBias, l.FFNNorm} {
			n += int64(len(v)) * 4
		}
	}
	return n
}

func (m Matrix) bytes() int64 { return int64(len(m.Data)) }
