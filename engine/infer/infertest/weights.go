package infertest

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/engine/gguf"
)

func (s Spec) weights(g *gguf.Writer) {
	t := &tensors{Spec: s, g: g}
	if s.Untied && !strings.HasPrefix(s.Arch, "gemma") { // gemma scales embeddings, and tied ones make the logits, too
		t.scale = float32(math.Sqrt(float64(s.Dim)))
	}
	t.matrix("token_embd.weight", s.Dim, s.Vocab)
	if n := s.LayerInput; n > 0 {
		t.matrix("per_layer_token_embd.weight", s.Layers*n, s.Vocab)
		t.matrix("per_layer_model_proj.weight", s.Dim, s.Layers*n)
		t.vector("per_layer_proj_norm.weight", n, 1)
	}
	for l := range s.Layers {
		t.layer(l, func(part string) string { return fmt.Sprintf("blk.%d.%s", l, part) })
	}
	t.vector("output_norm.weight", s.Dim, 1)
	if s.Untied {
		t.matrix("output.weight", s.Dim, s.Vocab)
	}
	if !s.RopeFactors {
		return
	}
	if s.Arch == "phi3" {
		t.factors("rope_factors_long.weight", 0.5)
		t.factors("rope_factors_short.weight", 0.125)
		return
	}
	t.factors("rope_freqs.weight", 0.25)
}

type tensors struct {
	Spec
	g     *gguf.Writer
	turn  int
	scale float32 // of the next matrix; 0 means 1
}

func (t *tensors) layer(l int, name func(string) string) {
	head, kvHeads := t.shape(l)
	q, kv := t.Heads*head, kvHeads*head
	post := strings.HasPrefix(t.Arch, "gemma") && t.Arch != "gemma" || t.Arch == "glm4"
	oss, glm := t.Arch == "gpt-oss", t.Arch == "glm4moe"
	t.vector(name("attn_norm.weight"), t.Dim, 1)
	if t.delta(l) {
		t.deltaNet(name)
		t.feedForward(l, name)
		return
	}
	if t.Arch == "phi3" {
		t.matrix(name("attn_qkv.weight"), t.Dim, q+2*kv)
	} else {
		if t.Arch == "qwen35" {
			t.matrix(name("attn_q.weight"), t.Dim, 2*q)
		} else {
			t.matrix(name("attn_q.weight"), t.Dim, q)
		}
		if !t.shared(l) {
			t.matrix(name("attn_k.weight"), t.Dim, kv)
		}
		if !t.shared(l) && (t.Arch != "gemma4" || t.LayerInput > 0 || t.local(l)) { // else values are the keys
			t.matrix(name("attn_v.weight"), t.Dim, kv)
		}
	}
	if t.Arch == "qwen2" || oss || glm {
		t.vector(name("attn_q.bias"), q, 0)
		t.vector(name("attn_k.bias"), kv, 0)
		t.vector(name("attn_v.bias"), kv, 0)
	}
	if strings.HasPrefix(t.Arch, "qwen3") || t.Arch == "gemma3" || t.Arch == "gemma4" {
		t.vector(name("attn_q_norm.weight"), head, 1)
		if !t.shared(l) {
			t.vector(name("attn_k_norm.weight"), head, 1)
		}
	}
	t.depth().matrix(name("attn_output.weight"), q, t.Dim)
	if oss {
		t.vector(name("attn_output.bias"), t.Dim, 0)
		t.vector(name("attn_sinks.weight"), t.Heads, 1)
	}
	if post {
		t.vector(name("post_attention_norm.weight"), t.Dim, t.share())
	}
	if oss || glm || t.Arch == "qwen35" {
		t.vector(name("post_attention_norm.weight"), t.Dim, 1)
	} else {
		t.vector(name("ffn_norm.weight"), t.Dim, 1)
	}
	t.feedForward(l, name)
	if post {
		t.vector(name("post_ffw_norm.weight"), t.Dim, t.share())
	}
	if t.Arch == "gemma4" {
		t.vector(name("layer_output_scale.weight"), 1, 0.8)
	}
	if n := t.LayerInput; n > 0 {
		t.matrix(name("inp_gate.weight"), t.Dim, n)
		t.matrix(name("proj.weight"), n, t.Dim)
		t.vector(name("post_norm.weight"), t.Dim, t.share())
	}
}

// deltaNet adds a gated delta net whose states halve in some six positions.
func (t *tensors) deltaNet(name func(string) string) {
	values, channels := t.Heads*t.HeadDim, 2*t.Heads*t.HeadDim
	t.matrix(name("attn_qkv.weight"), t.Dim, channels)
	t.matrix(name("attn_gate.weight"), t.Dim, values)
	t.vector(name("ssm_conv1d.weight"), deltaConv, 0.3, channels)
	t.vector(name("ssm_dt.bias"), 2*t.Heads, -2)
	t.vector(name("ssm_a"), 2*t.Heads, -1)
	t.matrix(name("ssm_beta.weight"), t.Dim, 2*t.Heads)
	t.matrix(name("ssm_alpha.weight"), t.Dim, 2*t.Heads)
	t.vector(name("ssm_norm.weight"), t.HeadDim/2, 1)
	t.depth().matrix(name("ssm_out.weight"), values, t.Dim)
	t.vector(name("post_attention_norm.weight"), t.Dim, 1)
}

func (t *tensors) feedForward(l int, name func(string) string) {
	defer func(n int) { t.Experts = n }(t.Experts)
	switch {
	case t.Experts > 0 && !(t.Arch == "glm4moe" && l == 0):
		router := *t
		router.Mix, router.Type = nil, gguf.F32 // as converters do
		router.matrix(name("ffn_gate_inp.weight"), t.Dim, t.Experts)
		if t.Arch == "gemma4" {
			t.matrix(name("ffn_gate_up_exps.weight"), t.Dim, 2*t.ExpertFFN, t.Experts)
		} else {
			t.matrix(name("ffn_gate_exps.weight"), t.Dim, t.ExpertFFN, t.Experts)
			t.matrix(name("ffn_up_exps.weight"), t.Dim, t.ExpertFFN, t.Experts)
		}
		t.depth().matrix(name("ffn_down_exps.weight"), t.ExpertFFN, t.Dim, t.Experts)
		switch t.Arch {
		case "gpt-oss":
			t.vector(name("ffn_gate_inp.bias"), t.Experts, 0)
			t.vector(name("ffn_gate_exps.bias"), t.ExpertFFN, 0, t.Experts)
			t.vector(name("ffn_up_exps.bias"), t.ExpertFFN, 0, t.Experts)
			t.vector(name("ffn_down_exps.bias"), t.Dim, 0, t.Experts)
		case "glm4moe":
			t.vector(name("exp_probs_b.bias"), t.Experts, 0)
			t.matrix(name("ffn_gate_shexp.weight"), t.Dim, t.ExpertFFN)
			t.matrix(name("ffn_up_shexp.weight"), t.Dim, t.ExpertFFN)
			t.depth().matrix(name("ffn_down_shexp.weight"), t.ExpertFFN, t.Dim)
		case "gemma4":
			t.vector(name("ffn_gate_inp.scale"), t.Dim, 1)
			t.vector(name("ffn_down_exps.scale"), t.Experts, 1)
			for _, norm := range []string{"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"} {
				t.vector(name(norm+".weight"), t.Dim, 1)
			}
			t.Experts = 0
			t.feedForward(l, name)
		}
		return
	case t.Arch == "phi3" || t.Arch == "glm4":
		t.matrix(name("ffn_up.weight"), t.Dim, 2*t.FFN)
	default:
		t.matrix(name("ffn_gate.weight"), t.Dim, t.ffn(l))
		t.matrix(name("ffn_up.weight"), t.Dim, t.ffn(l))
	}
	t.depth().matrix(name("ffn_down.weight"), t.ffn(l), t.Dim)
}

// share is the weight of each of the 2·Layers parts in the residual stream. With larger parts, random weights would
// amplify rounding errors.
func (t *tensors) share() float32 { return 1 / float32(2*t.Layers) }

// depth scales a matrix that writes into the residual stream.
func (t *tensors) depth() *tensors {
	t.scale = t.share()
	return t
}

// factors adds 1, 1+step, 1+2·step …
func (t *tensors) factors(name string, step float32) {
	f := make([]float32, t.RopeDim/2)
	for i := range f {
		f[i] = 1 + float32(i)*step
	}
	t.floats(name, f, len(f))
}

// vector adds values of mean ± 0.1.
func (t *tensors) vector(name string, n int, mean float32, rows ...int) {
	r := t.random(name, 0)
	all := n
	for _, d := range rows {
		all *= d
	}
	x := make([]float32, all)
	for i := range x {
		x[i] = mean + float32(0.1*r.NormFloat64())
	}
	t.floats(name, x, append([]int{n}, rows...)...)
}

func (t *tensors) floats(name string, x []float32, dims ...int) {
	data, err := gguf.Encode(gguf.F32, x)
	if err != nil {
		panic(err) // F32 can hold any number of values
	}
	t.g.AddTensor(name, dims, gguf.F32, data)
}

// random returns the source of one row, which depends on seed, name and row only.
func (s Spec) random(name string, row int) *rand.Rand {
	h := fnv.New64a()
	io.WriteString(h, name)
	return rand.New(rand.NewPCG(s.Seed^h.Sum64(), uint64(row)))
}

// quantiles are values of the normal distribution at equal steps of probability: drawing one is quicker than
// computing one.
var quantiles = sync.OnceValue(func() *[1 << 16]float32 {
	var q [1 << 16]float32
	for i := range q {
		p := (float64(i) + 0.5) / float64(len(q))
		q[i] = float32(math.Sqrt2 * math.Erfinv(2*p-1))
	}
	return &q
})

func normal(x []float32, r *rand.Rand, n int, std float32) []float32 {
	q := quantiles()
	for ; n >= 4; n -= 4 {
		u := r.Uint64()
		x = append(x, q[uint16(u)]*std, q[uint16(u>>16)]*std, q[uint16(u>>32)]*std, q[uint16(u>>48)]*std)
	}
	for ; n > 0; n-- {
		x = append(x, q[uint16(r.Uint64())]*std)
	}
	return x
}

const portion = 1 << 18

func (t *tensors) matrix(name string, cols int, rows ...int) {
	types := t.types()
	typ := types[t.turn%len(types)]
	t.turn++
	n := 1
	for _, d := range rows {
		n *= d
	}
	std := float64(t.Std)
	if std == 0 {
		std = 1 / math.Sqrt(float64(cols))
	}
	if t.scale > 0 {
		std *= float64(t.scale)
		t.scale = 0
	}
	step := max(1, portion/cols)
	s := t.Spec
	t.g.AddTensorFunc(name, append([]int{cols}, rows...), typ, func(w io.Writer) error {
		return ordered(w, (n+step-1)/step, func(part int) ([]byte, error) {
			lo := part * step
			hi := min(n, lo+step)
			x := make([]float32, 0, (hi-lo)*cols)
			for row := lo; row < hi; row++ {
				x = normal(x, s.random(name, row), cols, float32(std))
			}
			return gguf.Encode(typ, x)
		})
	})
}

// ordered writes n parts in their order. As many goroutines as there are processors produce them.
func ordered(w io.Writer, n int, produce func(part int) ([]byte, error)) error {
	var made sync.WaitGroup
	defer made.Wait()
	type result struct {
		data []byte
		err  error
	}
	ahead := min(n, runtime.GOMAXPROCS(0)+1)
	slots := make([]chan result, ahead) // each has at most one value: no send blocks
	for i := range slots {
		slots[i] = make(chan result, 1)
	}
	start := func(part int) {
		made.Go(func() {
			data, err := produce(part)
			slots[part%ahead] <- result{data, err}
		})
	}
	for part := range ahead {
		start(part)
	}
	for part := range n {
		r := <-slots[part%ahead]
		if r.err == nil {
			_, r.err = w.Write(r.data)
		}
		if r.err != nil {
			return r.err
		}
		if part+ahead < n {
			start(part + ahead)
		}
	}
	return nil
}
