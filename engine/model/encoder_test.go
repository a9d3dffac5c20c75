package model_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

// encoder returns a file of testdata with other keys and tensors; nil removes one.
func encoder(t *testing.T, name string, keys map[string]any, tensors map[string]*gguf.Tensor) *gguf.File {
	t.Helper()
	f, err := gguf.Open("../testdata/encoders/" + name + ".gguf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	keys, tensors = maps.Clone(keys), maps.Clone(tensors)
	var buf bytes.Buffer
	w := gguf.NewWriter(&buf)
	for _, k := range f.Keys() {
		if v, ok := keys[k]; ok {
			w.Set(k, v)
			continue
		}
		w.Copy(f, k)
	}
	for _, x := range f.Tensors() {
		if _, ok := tensors[x.Name]; !ok {
			w.AddTensor(x.Name, x.Dims, x.Type, x.Data)
		}
	}
	for _, x := range tensors {
		if x != nil {
			w.AddTensor(x.Name, x.Dims, x.Type, x.Data)
		}
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

func TestEncoders(t *testing.T) {
	without := func(name string) map[string]*gguf.Tensor { return map[string]*gguf.Tensor{name: nil} }
	for _, tt := range []struct {
		name  string
		gelu  bool
		ranks bool
		pair  int32
	}{{"bert", true, false, 0}, {"nomic-bert", false, false, 0}, {"rank", true, true, 3}} {
		m, err := model.Load(encoder(t, tt.name, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		c := m.Config
		if !c.Encoder || c.GELU != tt.gelu || c.Ranks != tt.ranks || c.Pair != tt.pair || (m.Positions != nil) != tt.gelu || len(m.Types) != 2*c.Dim {
			t.Errorf("%s: %+v", tt.name, c)
		}
	}
	if m, err := model.Load(encoder(t, "rank", nil, without("cls.weight"))); err == nil || m != nil {
		t.Error("a bias of the classifier without its weights is taken")
	}
	for _, tt := range []struct {
		name    string
		keys    map[string]any
		tensors map[string]*gguf.Tensor
		want    string
	}{
		{"bert", map[string]any{"bert.attention.causal": nil, "bert.attention.layer_norm_epsilon": nil}, nil, "bert.attention.layer_norm_epsilon is missing"},
		{"bert", map[string]any{"bert.context_length": 512}, nil, `tensor "position_embd.weight" has dimensions [32 320], want [32 512]`},
		{"bert", nil, without("token_embd_norm.bias"), `tensor "token_embd_norm.bias" is missing`},
		{"bert", nil, without("blk.1.layer_output_norm.weight"), `tensor "blk.1.layer_output_norm.weight" is missing`},
		{"nomic-bert", nil, without("blk.0.ffn_gate.weight"), `tensor "blk.0.ffn_gate.weight" is missing`},
		{"bert", map[string]any{"bert.attention.causal": 1}, nil, "bert.attention.causal is not false"},
		{"bert", map[string]any{"bert.pooling_type": 5}, nil, "bert.pooling_type is not known"},
		{"bert", map[string]any{"bert.pooling_type": "cls"}, nil, "bert.pooling_type is not known"},
		{"rank", map[string]any{"tokenizer.ggml.seperator_token_id": nil}, nil, "it parts the texts of a pair"},
		{"rank", map[string]any{"bert.pooling_type": 2}, nil, `tensor "cls.weight" has no place`},
		{"rank", nil, tensor(t, "cls.output.weight", gguf.F32, 32, 3), `tensor "cls.output.weight" has dimensions [32 3], want [32 1]`},
	} {
		if _, err := model.Load(encoder(t, tt.name, tt.keys, tt.tensors)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
