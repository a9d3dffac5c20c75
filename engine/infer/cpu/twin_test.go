package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

// twin is the forward pass as the papers have it: one sequence, no cache, no blocks, no
// quantised activations, everything in double precision on decoded weights.
type twin struct {
	t    testing.TB
	f    *gguf.File
	c    model.Config
	rope []float64 // factors
}

func newTwin(t testing.TB, f *gguf.File) *twin {
	t.Helper()
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	w := &twin{t: t, f: f, c: c, rope: make([]float64, c.RopeDim/2)}
	factors := w.tensor("rope_freqs.weight")
	for i := range w.rope {
		w.rope[i] = 1
		if factors != nil {
			w.rope[i] = factors[i]
		}
	}
	return w
}

// tensor decodes a tensor; nil when there is none.
func (w *twin) tensor(format string, args ...any) []float64 {
	t, ok := w.f.Tensor(fmt.Sprintf(format, args...))
	if !ok {
		return nil
	}
	x, err := t.Floats()
	if err != nil {
		w.t.Fatal(err)
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func matvec(m, x, bias []float64) []float64 {
	out := make([]float64, len(m)/len(x))
	for r := range out {
		for i, v := range x {
			out[r] += m[r*len(x)+i] * v
		}
		if bias != nil {
			out[r] += bias[r]
		}
	}
	return out
}

func (w *twin) norm(x, weight []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum/float64(len(x))+float64(w.c.RMSEps)) * weight[i]
	}
	return out
}

// rotate turns each head of v.
func (w *twin) rotate(v []float64, pos int) {
	c := w.c
	for h := 0; h < len(v); h += c.HeadDim {
		for i := range c.RopeDim / 2 {
			a, b := h+2*i, h+2*i+1
			if c.RopeNeoX {
				a, b = h+i, h+i+c.RopeDim/2
			}
			angle := float64(pos) / c.RopeScale * math.Pow(c.RopeBase, -2*float64(i)/float64(c.RopeDim)) / w.rope[i]
			sin, cos := math.Sincos(angle)
			v[a], v[b] = v[a]*cos-v[b]*sin, v[a]*sin+v[b]*cos
		}
	}
}

// logits computes the logits after each token of a sequence.
func (w *twin) logits(tokens []int32) [][]float64 {
	c := w.c
	embed := w.tensor("token_embd.weight")
	xs := make([][]float64, len(tokens))
	for i, t := range tokens {
		xs[i] = append([]float64(nil), embed[int(t)*c.Dim:][:c.Dim]...)
	}
	for l := range c.Layers {
		w.layer(l, xs)
	}
	head := w.tensor("output.weight")
	if head == nil {
		head = embed
	}
	out := make([][]float64, len(tokens))
	for i, x := range xs {
		out[i] = matvec(head, w.norm(x, w.tensor("output_norm.weight")), nil)
	}
	return out
}

func (w *twin) layer(l int, xs [][]float64) {
	c := w.c
	get := func(part string) []float64 { return w.tensor("blk.%d.%s", l, part) }
	var qs, ks, vs [][]float64
	for pos, x := range xs {
		n := w.norm(x, get("attn_norm.weight"))
		q := matvec(get("attn_q.weight"), n, get("attn_q.bias"))
		k := matvec(get("attn_k.weight"), n, get("attn_k.bias"))
		w.rotate(q, pos)
		w.rotate(k, pos)
		qs, ks, vs = append(qs, q), append(ks, k), append(vs, matvec(get("attn_v.weight"), n, get("attn_v.bias")))
	}
	for pos, x := range xs {
		att := make([]float64, c.Heads*c.HeadDim)
		for h := range c.Heads {
			kv := h * c.KVHeads / c.Heads * c.HeadDim
			q := qs[pos][h*c.HeadDim:][:c.HeadDim]
			weights, sum := make([]float64, pos+1), 0.0
			for p := range weights {
				var dot float64
				for i, v := range q {
					dot += v * ks[p][kv+i]
				}
				weights[p] = math.Exp(dot / math.Sqrt(float64(c.HeadDim)))
				sum += weights[p]
			}
			for p, a := range weights {
				for i := range c.HeadDim {
					att[h*c.HeadDim+i] += a / sum * vs[p][kv+i]
				}
			}
		}
		addTo(x, matvec(get("attn_output.weight"), att, get("attn_output.bias")))
		n := w.norm(x, get("ffn_norm.weight"))
		gate, up := matvec(get("ffn_gate.weight"), n, nil), matvec(get("ffn_up.weight"), n, nil)
		for i, g := range gate {
			gate[i] = g / (1 + math.Exp(-g)) * up[i]
		}
		addTo(x, matvec(get("ffn_down.weight"), gate, nil))
	}
}

func addTo(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

// cosine is the angle between what was computed and what should have been.
func cosine(got []float32, want []float64) float64 {
	var ab, aa, bb float64
	for i, w := range want {
		g := float64(got[i])
		ab, aa, bb = ab+g*w, aa+g*g, bb+w*w
	}
	return ab / math.Sqrt(aa*bb)
}
