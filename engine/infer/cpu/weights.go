package cpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

// weights is the model in the form that steps use. The matrices' Data points into the packed matrices.
type weights struct {
	embed      *matrix // [Vocab, Dim]
	inputEmbed *matrix // as in model.Model; may be nil
	inputProj  *matrix
	inputNorm  []float32
	output     *matrix // [Vocab, Dim]; embed itself if the file ties them
	outputNorm []float32
	layers     []layer

	// Of an encoder only; as in model.Model.
	outputNormBias   []float32
	positions, types []float32
	class, classBias []float32
	score            []float32
	scoreBias        float32

	matrices []packed // in their order in memory
	size     int64
}

// layer mirrors model.Layer.
type layer struct {
	model.Vectors
	ones []float32 // norm of values, or factors of a convolution; may be nil

	unitQ, unitK []float32 // make queries 1/√DeltaDim and keys 1 long

	q, k, v, o           *matrix   // k and v may be nil
	qkv                  []*matrix // all with the same input
	deltaGate            *matrix   // of a delta net, whose only others here are q and o
	alpha, beta          *matrix
	gated                bool
	gate, up, down       *matrix // nil in a mixture of experts without a shared one; gate in BERT too
	inputGate, inputDown *matrix // may be nil

	router *matrix // nil without experts
	gates  []*matrix
	ups    []*matrix
	downs  []*matrix
	all    []*matrix // gates and ups
	first  []*matrix // router, and gate and up of the shared expert

	scale            float32
	window, ropeKind int
	headDim, kvHeads int
	source           int
}

type matrix struct {
	kernel.Matrix
	floats bool // multiplied with float activations, else with 8-bit integers
	tile   int  // bytes of kernel.Tile rows
}

// part returns rows lo…hi; lo must be a multiple of kernel.Tile.
func (m *matrix) part(lo, hi int) kernel.Matrix {
	return kernel.Matrix{Rows: hi - lo, Cols: m.Cols, Type: m.Type, Data: m.Data[lo/kernel.Tile*m.tile:]}
}

func part(m *kernel.Matrix, lo, hi int) kernel.Matrix {
	w := matrix{Matrix: *m, tile: kernel.PackedBytes(m.Type, kernel.Tile, m.Cols)}
	return w.part(lo, hi)
}

func newMatrix(t gguf.Type, rows, cols int) *matrix {
	var floats kernel.Input
	floats.Resize(gguf.F32, 0, cols)
	return &matrix{
		Matrix: kernel.Matrix{Rows: rows, Cols: cols, Type: t},
		floats: floats.Fits(t), tile: kernel.PackedBytes(t, kernel.Tile, cols),
	}
}

type packed struct {
	from       model.Matrix
	to         *matrix
	role       role
	at, length int64 // among the packed matrices
}

// role is how a matrix is divided between ranks.
type role uint8

const (
	byRows role = iota
	byHeads
	byKVHeads
	whole  // every rank uses all of it
	looked // single rows are looked up, by any rank
)

// align is a cache line.
const align = 64

func newWeights(m *model.Model) (*weights, error) {
	b := &builder{w: &weights{}}
	w := b.w
	tied := &m.Output.Data[0] == &m.Embed.Data[0]
	if tied {
		w.embed = b.matrix("token_embd", &m.Embed, byRows)
		w.output = w.embed
	} else {
		w.embed = b.matrix("token_embd", &m.Embed, looked)
		w.output = b.matrix("output", &m.Output, byRows)
	}
	if m.Config.LayerInput > 0 {
		w.inputEmbed = b.matrix("per_layer_token_embd", &m.InputEmbed, looked)
		w.inputProj = b.matrix("per_layer_model_proj", &m.InputProj, byRows)
		w.inputNorm = slices.Clone(m.InputNorm)
	}
	w.outputNorm, w.outputNormBias = slices.Clone(m.OutputNorm), slices.Clone(m.OutputNormBias)
	w.positions, w.types = slices.Clone(m.Positions), slices.Clone(m.Types)
	w.class, w.classBias, w.score = slices.Clone(m.Class), slices.Clone(m.ClassBias), slices.Clone(m.Score)
	if m.Config.Ranks {
		w.scoreBias = m.ScoreBias[0]
	}
	for i := range m.Layers {
		b.prefix = fmt.Sprintf("blk.%d.", i)
		l := b.layer(&m.Layers[i])
		if l.headDim, l.kvHeads = m.Config.Shape(i); m.Layers[i].NormsValues {
			l.ones = slices.Repeat([]float32{1}, l.headDim)
		}
		if d := m.Config.DeltaDim; l.deltaGate != nil {
			l.ones = slices.Repeat([]float32{1}, d)
			l.unitQ, l.unitK = slices.Repeat([]float32{1 / float32(d)}, d), slices.Repeat([]float32{float32(1 / math.Sqrt(float64(d)))}, d)
		}
		w.layers = append(w.layers, l)
	}
	return w, b.err
}

// rank scores the normed hidden state of a pair's first token.
func (w *weights) rank(x []float32) float32 {
	dot := func(row []float32) (sum float64) {
		for i, v := range row {
			sum += float64(float64(v) * float64(x[i]))
		}
		return sum
	}
	if w.class != nil {
		y := make([]float32, len(x))
		for i := range y {
			y[i] = float32(math.Tanh(dot(w.class[i*len(x):][:len(x)]) + float64(w.classBias[i])))
		}
		x = y
	}
	return float32(dot(w.score) + float64(w.scoreBias))
}

type builder struct {
	w      *weights
	prefix string
	err    error
}

func (b *builder) layer(l *model.Layer) layer {
	to := layer{
		Vectors: l.Vectors,
		q:       b.matrix("attn_q", &l.Q, byHeads), k: b.matrix("attn_k", &l.K, byKVHeads), v: b.matrix("attn_v", &l.V, byKVHeads),
		o:    b.matrix("attn_output", &l.O, byRows),
		gate: b.matrix("ffn_gate", &l.Gate, byRows), up: b.matrix("ffn_up", &l.Up, byRows), down: b.matrix("ffn_down", &l.Down, byRows),
		inputGate: b.matrix("inp_gate", &l.InputGate, byRows), inputDown: b.matrix("proj", &l.InputDown, byRows),
		deltaGate: b.matrix("attn_gate", &l.DeltaGate, byRows), alpha: b.matrix("ssm_alpha", &l.Alpha, byRows), beta: b.matrix("ssm_beta", &l.Beta, byRows),
		gated: l.Gated, window: l.Window, ropeKind: l.Rope, source: l.Source, scale: l.Scale,
	}
	to.Each(func(v *[]float32) { *v = slices.Clone(*v) })
	to.qkv = slices.DeleteFunc([]*matrix{to.q, to.k, to.v, to.deltaGate, to.alpha, to.beta}, func(m *matrix) bool { return m == nil })
	if len(l.ExpertGate) == 0 {
		return to
	}
	to.router = b.matrix("ffn_gate_inp", &l.Router, whole)
	for e := range l.ExpertGate {
		to.gates = append(to.gates, b.matrix("ffn_gate_exps", &l.ExpertGate[e], byRows))
		to.ups = append(to.ups, b.matrix("ffn_up_exps", &l.ExpertUp[e], byRows))
		to.downs = append(to.downs, b.matrix("ffn_down_exps", &l.ExpertDown[e], byRows))
	}
	to.all = slices.Concat(to.gates, to.ups)
	if to.first = []*matrix{to.router}; to.gate != nil {
		to.first = append(to.first, to.gate, to.up)
	}
	return to
}

func (b *builder) matrix(name string, m *model.Matrix, r role) *matrix {
	if b.err != nil || m.Rows == 0 {
		return nil
	}
	t := m.Type
	if kernel.Supports(t, m.Cols) != nil && t.Decodable() {
		t = gguf.Q8_0 // the closest type with blocks
	}
	if kernel.Supports(t, m.Cols) != nil {
		b.err = fmt.Errorf("tensor %q: %w", b.prefix+name+".weight", kernel.Supports(m.Type, m.Cols))
		return nil
	}
	to := newMatrix(t, m.Rows, m.Cols)
	n := int64(kernel.PackedBytes(t, m.Rows, m.Cols))
	b.w.matrices = append(b.w.matrices, packed{from: *m, to: to, role: r, at: b.w.size, length: n})
	b.w.size += (n + align - 1) / align * align
	return to
}

// bind points all matrices into mem; nil unbinds them.
func (w *weights) bind(mem []byte) {
	for i := range w.matrices {
		p := &w.matrices[i]
		p.to.Data = nil
		if mem != nil {
			p.to.Data = mem[p.at : p.at+p.length : p.at+p.length]
		}
	}
}

func (w *weights) sameLayout(other *weights) bool {
	return slices.EqualFunc(w.matrices, other.matrices, func(a, b packed) bool {
		return a.at == b.at && a.length == b.length && a.from.Type == b.from.Type && a.from.Rows == b.from.Rows && a.from.Cols == b.from.Cols
	})
}

type piece struct {
	*packed
	lo, hi int
}

func (w *weights) pieces(size int64, s *share) []piece {
	var out []piece
	for i := range w.matrices {
		p := &w.matrices[i]
		tiles := int64(p.from.Rows+kernel.Tile-1) / kernel.Tile
		step := int(max(1, size*tiles/max(p.length, 1))) * kernel.Tile
		r := s.rows(p)
		if p.to == w.embed || p.role == looked {
			r = rows{0, p.to.Rows} // any row may be looked up
		}
		for lo := r.lo; lo < r.hi; lo += step {
			out = append(out, piece{p, lo, min(r.hi, lo+step)})
		}
	}
	return out
}

func (p piece) span() (at, length int64) {
	return p.at + int64(p.lo/kernel.Tile*p.to.tile), int64(kernel.PackedBytes(p.to.Type, p.hi-p.lo, p.to.Cols))
}

func (p piece) pack(dst []byte) error {
	line := len(p.from.Data) / p.from.Rows
	src := p.from.Data[p.lo*line : p.hi*line]
	if p.from.Type != p.to.Type {
		x := make([]float32, (p.hi-p.lo)*p.from.Cols)
		err := gguf.Decode(p.from.Type, x, src)
		if err == nil {
			src, err = gguf.Encode(p.to.Type, x)
		}
		if err != nil {
			return err
		}
	}
	kernel.Pack(dst, p.to.Type, p.hi-p.lo, p.to.Cols, src, 0, p.hi-p.lo)
	return nil
}
