package infertest

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// weights adds all tensors, in the order in which converters write them.
func (s Spec) weights(g *gguf.Writer) {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	s.matrix(g, "token_embd.weight", s.Dim, s.Vocab)
	for l := range s.Layers {
		name := func(part string) string { return fmt.Sprintf("blk.%d.%s", l, part) }
		s.vector(g, name("attn_norm.weight"), s.Dim, 1)
		s.matrix(g, name("attn_q.weight"), s.Dim, q)
		s.matrix(g, name("attn_k.weight"), s.Dim, kv)
		s.matrix(g, name("attn_v.weight"), s.Dim, kv)
		if s.Arch == "qwen2" {
			s.vector(g, name("attn_q.bias"), q, 0)
			s.vector(g, name("attn_k.bias"), kv, 0)
			s.vector(g, name("attn_v.bias"), kv, 0)
		}
		s.matrix(g, name("attn_output.weight"), q, s.Dim)
		s.vector(g, name("ffn_norm.weight"), s.Dim, 1)
		s.matrix(g, name("ffn_gate.weight"), s.Dim, s.FFN)
		s.matrix(g, name("ffn_up.weight"), s.Dim, s.FFN)
		s.matrix(g, name("ffn_down.weight"), s.FFN, s.Dim)
	}
	s.vector(g, "output_norm.weight", s.Dim, 1)
	if s.Untied {
		s.matrix(g, "output.weight", s.Dim, s.Vocab)
	}
	if s.RopeFactors {
		f := make([]float32, s.RopeDim/2)
		for i := range f {
			f[i] = 1 + float32(i)/4
		}
		data, err := gguf.Encode(gguf.F32, f)
		if err != nil {
			panic(err) // F32 can hold any number of values
		}
		g.AddTensor("rope_freqs.weight", []int{len(f)}, gguf.F32, data)
	}
}

// random is the source of one tensor: the seed and the name determine its values, whatever
// else is in the file.
func (s Spec) random(name string) *rand.Rand {
	h := fnv.New64a()
	io.WriteString(h, name)
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}

// vector adds a norm's weights or a bias: mean ± 0.1.
func (s Spec) vector(g *gguf.Writer, name string, n int, mean float32) {
	r := s.random(name)
	x := make([]float32, n)
	for i := range x {
		x[i] = mean + float32(0.1*r.NormFloat64())
	}
	data, err := gguf.Encode(gguf.F32, x)
	if err != nil {
		panic(err) // F32 can hold any number of values
	}
	g.AddTensor(name, []int{n}, gguf.F32, data)
}

// matrix adds a matrix of normally distributed values, generated row by row.
func (s Spec) matrix(g *gguf.Writer, name string, cols, rows int) {
	std := float64(s.Std)
	if std == 0 {
		std = 1 / math.Sqrt(float64(cols))
	}
	g.AddTensorFunc(name, []int{cols, rows}, s.Type, func(w io.Writer) error {
		r := s.random(name)
		row := make([]float32, cols)
		for range rows {
			for i := range row {
				row[i] = float32(r.NormFloat64() * std)
			}
			data, err := gguf.Encode(s.Type, row)
			if err != nil {
				return err
			}
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
		return nil
	})
}
