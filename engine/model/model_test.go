package model_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

// edit changes a generated model's keys and tensors; nil removes one.
type edit struct {
	spec    infertest.Spec
	keys    map[string]any
	tensors map[string]*gguf.Tensor
}

func (e edit) file(t *testing.T) *gguf.File {
	t.Helper()
	f := infertest.Open(t, e.spec)
	var buf bytes.Buffer
	w := gguf.NewWriter(&buf)
	keys, tensors := maps.Clone(e.keys), maps.Clone(e.tensors)
	for _, k := range f.Keys() {
		if v, ok := keys[k]; ok {
			w.Set(k, v)
			delete(keys, k)
			continue
		}
		w.Copy(f, k)
	}
	for k, v := range keys {
		w.Set(k, v)
	}
	add := func(x *gguf.Tensor) {
		if x != nil {
			w.AddTensor(x.Name, x.Dims, x.Type, x.Data)
		}
	}
	for _, x := range f.Tensors() {
		if y, ok := tensors[x.Name]; ok {
			add(y)
			delete(tensors, x.Name)
			continue
		}
		add(&x)
	}
	for _, x := range tensors {
		add(x)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	out, err := gguf.Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tensor returns a tensor of zeros.
func tensor(t *testing.T, name string, typ gguf.Type, dims ...int) map[string]*gguf.Tensor {
	t.Helper()
	x := &gguf.Tensor{Name: name, Dims: dims, Type: typ}
	size, err := typ.RowBytes(x.Len())
	if err != nil {
		t.Fatal(err)
	}
	x.Data = make([]byte, size)
	return map[string]*gguf.Tensor{name: x}
}

func TestConfig(t *testing.T) {
	base := model.Config{
		Arch: "llama", Name: "random-llama-2x64", Layers: 2, Dim: 64, Heads: 4, KVHeads: 4, HeadDim: 16, FFN: 128, Vocab: 400, Context: 256,
		RMSEps: 1e-5, RopeBase: 10000, RopeDim: 16, RopeScale: 1,
		RopeTrain: 256, RopeMag: 1, Ropes: 1, EmbedScale: 1, AttnScale: 0.25,
	}
	for name, tt := range map[string]struct {
		edit
		want func(*model.Config)
	}{
		"default": {edit{}, func(*model.Config) {}},
		"qwen2": {edit{spec: infertest.Spec{Arch: "qwen2", KVHeads: 2}}, func(c *model.Config) {
			c.Arch, c.Name, c.KVHeads, c.RopeNeoX = "qwen2", "random-qwen2-2x64", 2, true
		}},
		"what may be absent": {edit{keys: map[string]any{"llama.attention.head_count_kv": nil, "llama.attention.key_length": nil,
			"llama.attention.value_length": nil, "llama.rope.freq_base": nil, "llama.rope.dimension_count": nil, "llama.vocab_size": nil, "general.name": nil}},
			func(c *model.Config) { c.Name = "" }},
		"one number per layer": {edit{keys: map[string]any{"llama.attention.head_count_kv": []int32{4, 4}}}, func(*model.Config) {}},
		"scaled":               {edit{keys: map[string]any{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0}}, func(c *model.Config) { c.RopeScale = 8 }},
		"scaled, older key":    {edit{keys: map[string]any{"llama.rope.scale_linear": 2.0}}, func(c *model.Config) { c.RopeScale = 2 }},
		"not scaled":           {edit{keys: map[string]any{"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 8.0}}, func(*model.Config) {}},
		"padded vocabulary":    {edit{keys: map[string]any{"tokenizer.ggml.tokens": []string{"a", "b"}}}, func(*model.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			tt.want(&want)
			f := tt.file(t)
			got, err := model.ReadConfig(f)
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Fatalf("%v, -want +got\n%s", err, d)
			}
			if _, err := model.Load(f); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	m, err := model.Load(infertest.Open(t, infertest.Spec{Arch: "qwen2", KVHeads: 2, Untied: true, RopeFactors: true, Type: gguf.Q8_0}))
	if err != nil {
		t.Fatal(err)
	}
	l := m.Layers[1]
	got := [][2]int{{m.Embed.Rows, m.Embed.Cols}, {m.Output.Rows, m.Output.Cols}, {l.Q.Rows, l.Q.Cols}, {l.K.Rows, l.K.Cols}, {l.Gate.Rows, l.Gate.Cols}, {l.Down.Rows, l.Down.Cols}}
	want := [][2]int{{400, 64}, {400, 64}, {64, 64}, {32, 64}, {128, 64}, {64, 128}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("shapes: -want +got\n%s", d)
	}
	if len(l.QBias) != 64 || len(l.KBias) != 32 || len(l.VBias) != 32 || l.OBias != nil || len(m.RopeFactors) != 8 {
		t.Error("biases or rope factors are wrong")
	}
	if &m.Embed.Data[0] == &m.Output.Data[0] {
		t.Error("the output matrix is the embedding")
	}
	tied, err := model.Load(infertest.Open(t, infertest.Spec{}))
	if err != nil {
		t.Fatal(err)
	}
	if &tied.Embed.Data[0] != &tied.Output.Data[0] || tied.Output.F32 == nil {
		t.Error("without an output matrix the embedding takes its place")
	}
}

func TestRefused(t *testing.T) {
	qwen := infertest.Spec{Arch: "qwen2"}
	key := func(k string, v any) edit { return edit{keys: map[string]any{k: v}} }
	for want, e := range map[string]edit{
		`general.architecture is missing`: key("general.architecture", nil),
		`architecture "mamba" is not supported; supported are bert, gemma, gemma2, gemma3, gemma4, glm4, glm4moe, gpt-oss, llama, nomic-bert, phi3, qwen2, qwen3, qwen35, qwen3moe`: key("general.architecture", "mamba"),
		`llama.block_count is missing`:                                 key("llama.block_count", nil),
		`llama.embedding_length must be a whole number`:                key("llama.embedding_length", "wide"),
		`llama.context_length must be a whole number`:                  key("llama.context_length", 0),
		`llama.feed_forward_length must be a whole number from 1 to 1`: key("llama.feed_forward_length", 1<<31),
		`llama.attention.head_count is missing`:                        key("llama.attention.head_count", nil),
		`differs between layers (4 and 2)`:                             key("llama.attention.head_count_kv", []int32{4, 2}),
		`head_count_kv must be a whole number`:                         key("llama.attention.head_count_kv", []int32{-4, -4}),
		`4 query heads cannot share 3`:                                 key("llama.attention.head_count_kv", 3),
		`epsilon is missing`:                                           key("llama.attention.layer_norm_rms_epsilon", nil),
		`epsilon is -1`:                                                key("llama.attention.layer_norm_rms_epsilon", -1.0),
		`epsilon must be a floating-point number`:                      key("llama.attention.layer_norm_rms_epsilon", 1),
		`freq_base is -5`:                                              key("llama.rope.freq_base", -5.0),
		`dimension_count is 18, want an even number`:                   key("llama.rope.dimension_count", 18),
		`dimension_count is 5`:                                         key("llama.rope.dimension_count", 5),
		`rope.scaling.type "dynamic" is not supported`:                 key("llama.rope.scaling.type", "dynamic"),
		`scaling.factor is -2`:                                         key("llama.rope.scaling.factor", -2.0),
		`attn_factor is -2`:                                            key("llama.rope.scaling.attn_factor", -2.0),
		`value_length 8 differs from`:                                  key("llama.attention.value_length", 8),
		`llama.expert_used_count is missing`:                           key("llama.expert_count", 8),
		`qwen2.attention.sliding_window is 4096`:                       {spec: qwen, keys: map[string]any{"qwen2.attention.sliding_window": 4096}},
		`embedding_length 64 is not a multiple of attention.head_count 3`: {keys: map[string]any{
			"llama.attention.head_count": 3, "llama.attention.head_count_kv": 3, "llama.attention.key_length": nil}},
		`tokenizer has 401 tokens and tensor "token_embd.weight" only 400 rows`: key("tokenizer.ggml.tokens", make([]string, 401)),
		`tensor "token_embd.weight" is missing`:                                 {tensors: map[string]*gguf.Tensor{"token_embd.weight": nil}},
		`tensor "blk.1.ffn_up.weight" is missing`:                               {tensors: map[string]*gguf.Tensor{"blk.1.ffn_up.weight": nil}},
		`tensor "blk.0.attn_k.bias" is missing`:                                 {spec: qwen, tensors: map[string]*gguf.Tensor{"blk.0.attn_k.bias": nil}},
		`tensor "blk.2.attn_norm.weight" is missing`:                            key("llama.block_count", 3),
		`tensor "blk.1.`: key("llama.block_count", 1),
		`tensor "blk.0.attn_q.weight" has dimensions [64 32], want [64 64]`: {tensors: tensor(t, "blk.0.attn_q.weight", gguf.F32, 64, 32)},
		`tensor "blk.0.attn_norm.weight" has dimensions [64 1], want [64]`:  {tensors: tensor(t, "blk.0.attn_norm.weight", gguf.F32, 64, 1)},
		`tensor "output_norm.weight" has dimensions [63], want [64]`:        {tensors: tensor(t, "output_norm.weight", gguf.F32, 63)},
		`tensor "blk.0.attn_v.weight" has type I8, which is not supported`:  {tensors: tensor(t, "blk.0.attn_v.weight", 24, 64, 64)},
		`tensor "blk.0.attn_q_norm.weight" has no place`:                    {tensors: tensor(t, "blk.0.attn_q_norm.weight", gguf.F32, 16)},
		`tensor "rope_freqs.weight" holds 0`:                                {tensors: tensor(t, "rope_freqs.weight", gguf.F32, 8)},
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := model.Load(e.file(t)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}
