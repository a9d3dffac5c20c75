package model

import (
	"github.com/rouse-dev/rouse/engine/gguf"
)

// Matrix maps a vector of Cols values to one of Rows. Data is the file's memory, row after row.
type Matrix struct {
	Rows, Cols int
	Type       gguf.Type // Decodable
	Data       []byte
	F32        []float32 // Data, for type F32
}

func matrix(t gguf.Tensor, rows, cols int) Matrix {
	m := Matrix{Rows: rows, Cols: cols, Type: t.Type, Data: t.Data}
	if t.Type == gguf.F32 {
		m.F32 = floats(t)
	}
	return m
}

// slice shares the memory. A missing matrix stays empty.
func (m Matrix) slice(lo, hi int) Matrix {
	if m.Rows == 0 {
		return m
	}
	size := len(m.Data) / m.Rows
	out := Matrix{Rows: hi - lo, Cols: m.Cols, Type: m.Type, Data: m.Data[lo*size : hi*size : hi*size]}
	if m.F32 != nil {
		out.F32 = m.F32[lo*m.Cols : hi*m.Cols : hi*m.Cols]
	}
	return out
}

// Row decodes into dst, [Cols].
func (m *Matrix) Row(dst []float32, row int) {
	size := len(m.Data) / m.Rows
	if err := gguf.Decode(m.Type, dst[:m.Cols], m.Data[row*size:][:size]); err != nil {
		panic(err) // Load admits decodable types and whole rows
	}
}

// Layer is a transformer block. With x the residual stream it computes:
//
//  1. y = norm(x, AttnNorm); q, k, v = Q·y+QBias, K·y+KBias, V·y+VBias.
//  2. Each head of q is normed with QNorm, of k with KNorm; then both are rotated.
//  3. y = O·attention(q, k, v) + OBias, normed with AttnPostNorm; x += y.
//  4. y = norm(x, FFNNorm); y = Down·(act(Gate·y) · (Up·y)), normed with FFNPostNorm; x += y.
//
// In an encoder, norm is LayerNorm with a bias and replaces x; without Gate, 4 is y = Down·gelu(Up·y+UpBias)+DownBias.
// In a mixture of experts Gate, Up and Down are the shared expert's, or empty, and 4 adds the chosen experts' results
// times their weights. Weights are the softmax over Router·y+RouterBias; the largest are chosen, with Choice by the sum
// with it.
type Layer struct {
	Vectors
	DeltaNet

	Q    Matrix // [Heads·HeadDim, Dim]; twice as many rows if Gated; with a delta net [DeltaChannels, Dim]
	K, V Matrix // [KVHeads·HeadDim, Dim]
	O    Matrix // [Dim, Heads·HeadDim], with a delta net [Dim, DeltaHeads·DeltaDim]

	Gated bool // each head of Q has a gate behind the query, whose sigmoid multiplies the head's result before O

	Gate, Up Matrix // [FFN, Dim], in a mixture of experts [SharedFFN, Dim]
	Down     Matrix // [Dim, FFN], or [Dim, SharedFFN]

	Router     Matrix   // [Experts, Dim]
	ExpertGate []Matrix // Experts × [ExpertFFN, Dim]
	ExpertUp   []Matrix // Experts × [ExpertFFN, Dim]
	ExpertDown []Matrix // Experts × [Dim, ExpertFFN]

	Scale       float32 // of x at the end of the block; 0: none
	InputGate   Matrix  // [LayerInput, Dim]; before Scale x += norm(InputDown·(act(InputGate·x) · input), InputNorm)
	InputDown   Matrix  // [Dim, LayerInput]
	Source      int     // the layer whose keys and values it uses; its own have K, and V, or V = K without norm and rotation
	NormsValues bool    // heads of values are normed, without weights

	Window int // position p sees p-Window+1 … p; 0: all up to p
	Rope   int // one of Config.Ropes kinds
}

// DeltaNet has the matrices of a gated delta net besides Q and O. In place of steps 1 to 3, with d for DeltaDim, its
// block computes:
//
//  1. y = norm(x, AttnNorm); q, k, v = silu(Q·y convolved with Conv), each channel alone.
//  2. Each head of q and k is divided by its length, and q by √d.
//  3. Each head's state S [d, d] changes: S *= exp(Decay·softplus(Alpha·y+DecayBias)); S += k·(sigmoid(Beta·y)·(v -
//     kᵀ·S)).
//  4. x += O·(norm(qᵀ·S, DeltaNorm)·silu(DeltaGate·y)).
type DeltaNet struct {
	DeltaGate   Matrix // [DeltaHeads·DeltaDim, Dim]
	Alpha, Beta Matrix // [DeltaHeads, Dim]
}

// Vectors are a layer's norms and biases, or nil.
type Vectors struct {
	AttnNorm, AttnNormBias, AttnPostNorm []float32 // [Dim]
	FFNNorm, FFNNormBias, FFNPostNorm    []float32 // [Dim]
	QNorm, KNorm                         []float32 // [HeadDim]
	QBias, KBias, VBias, OBias           []float32
	UpBias, DownBias                     []float32 // [FFN] and [Dim]
	Sinks                                []float32 // [Heads] logits that join each head's softmax without a value
	InputNorm                            []float32 // [Dim]

	Conv                        []float32 // [DeltaChannels, DeltaConv], the last for the position itself
	Decay, DecayBias, DeltaNorm []float32 // [DeltaHeads], [DeltaHeads], [DeltaDim]

	RouterBias, Choice           []float32 // [Experts]
	ExpertGateBias, ExpertUpBias []float32 // [Experts, ExpertFFN]
	ExpertDownBias               []float32 // [Experts, Dim]

	// Of Gemma 4. Router and experts have own norms of x; FFNNorm is the shared expert's. Its result and the chosen
	// ones' sum are normed before they are added.
	RouterNorm, ExpertNorm         []float32 // [Dim]
	ExpertPostNorm, SharedPostNorm []float32 // [Dim]
	ExpertWeights                  []float32 // [Experts] factors of weights
}

// Each calls do for every vector.
func (v *Vectors) Each(do func(*[]float32)) {
	for _, x := range []*[]float32{
		&v.AttnNorm, &v.AttnNormBias, &v.AttnPostNorm, &v.FFNNorm, &v.FFNNormBias, &v.FFNPostNorm, &v.QNorm, &v.KNorm, &v.QBias, &v.KBias, &v.VBias, &v.OBias,
		&v.UpBias, &v.DownBias, &v.Sinks, &v.InputNorm, &v.Conv, &v.Decay, &v.DecayBias, &v.DeltaNorm, &v.RouterBias, &v.Choice, &v.ExpertGateBias, &v.ExpertUpBias, &v.ExpertDownBias,
		&v.RouterNorm, &v.ExpertNorm, &v.ExpertPostNorm, &v.SharedPostNorm, &v.ExpertWeights,
	} {
		do(x)
	}
}

// Model is read-only and refers to the file's memory.
type Model struct {
	Config      Config
	Embed       Matrix    // [Vocab, Dim]
	OutputNorm  []float32 // [Dim]
	Output      Matrix    // [Vocab, Dim]; may be Embed
	RopeFactors []float32 // [RopeDim/2] divisors of frequencies; nil: all 1
	Layers      []Layer

	OutputNormBias   []float32 // [Dim]
	Positions, Types []float32 // [Context, Dim] and [types, Dim], added to a token's embedding; nil: none
	Class, ClassBias []float32 // [Dim, Dim] and [Dim], of the classifier's tanh layer; nil: none
	Score, ScoreBias []float32 // [Dim] and [1], of the classifier's output

	// With Config.LayerInput, layer i's input is part i of (norm(InputProj·x/√Dim, InputNorm) +
	// √LayerInput·InputEmbed's row)/√2, where x is the embedding.
	InputEmbed Matrix    // [Vocab, Layers·LayerInput]
	InputProj  Matrix    // [Layers·LayerInput, Dim]
	InputNorm  []float32 // [LayerInput], of each part

	ropeShort, ropeLong []float32 // instead of RopeFactors, by the context's length; nil: none
	ropes               [2]rotation
}

// Matrices calls do for every matrix.
func (l *Layer) Matrices(do func(*Matrix)) {
	for _, m := range []*Matrix{&l.Q, &l.K, &l.V, &l.O, &l.Gate, &l.Up, &l.Down, &l.Router, &l.InputGate, &l.InputDown, &l.DeltaGate, &l.Alpha, &l.Beta} {
		if m.Rows > 0 {
			do(m)
		}
	}
	for _, all := range [][]Matrix{l.ExpertGate, l.ExpertUp, l.ExpertDown} {
		for i := range all {
			do(&all[i])
		}
	}
}
