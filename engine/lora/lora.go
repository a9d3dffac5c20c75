// Package lora holds low-rank adapters (Hu et al., LoRA, arXiv:2106.09685). For each adapted matrix W the forward
// pass computes y = W·x + Scale·B·(A·x), with A of a few rows and B of a few columns.
//
// An Adapter is only read once it is made, by any number of goroutines.
package lora

// Target is a matrix of a layer that an adapter can change.
type Target int

// The targets, by the role of the matrix in its layer.
const (
	Q Target = iota
	K
	V
	O
	Gate
	Up
	Down
	NumTargets
)

var targetNames = [NumTargets]string{"q", "k", "v", "o", "gate", "up", "down"}

// String returns the target's short name: q, k, v, o, gate, up or down.
func (t Target) String() string {
	if t < 0 || t >= NumTargets {
		return "unknown"
	}
	return targetNames[t]
}

// Pair is the change of one matrix [Rows, Cols]: B·A, not yet scaled.
type Pair struct {
	A []float32 // [Rank, Cols]
	B []float32 // [Rows, Rank]
}

// Adapter is one loaded adapter.
type Adapter struct {
	Name   string
	Rank   int     // of every pair, at least 1
	Scale  float32 // alpha / rank
	Layers [][NumTargets]*Pair
}
