package lora

import (
	"fmt"
	"strconv"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

var ggufName = lazyregexp.New(`^blk\.(\d{1,6})\.(\w+)\.weight\.lora_([ab])$`)

// ggufTargets are by a tensor's name. Some architectures fuse matrices.
var ggufTargets = map[string][]Target{
	"attn_q": {Q}, "attn_k": {K}, "attn_v": {V}, "attn_output": {O}, "ffn_gate": {Gate}, "ffn_up": {Up}, "ffn_down": {Down},
	"attn_qkv": {Q, K, V},
}

func fromGGUF(f *gguf.File, c model.Config) (*Adapter, error) {
	if kind, _ := f.String("general.type"); kind != "adapter" {
		return nil, fmt.Errorf("general.type is %q: want an adapter; this may be a whole model", kind)
	}
	if kind, _ := f.String("adapter.type"); kind != "lora" {
		return nil, fmt.Errorf("adapter.type is %q: only lora is supported", kind)
	}
	if arch := f.Architecture(); arch != c.Arch {
		return nil, fmt.Errorf("it is made for the architecture %q, the model is %q", arch, c.Arch)
	}
	alpha, ok := f.Float("adapter.lora.alpha")
	if !ok || alpha-alpha != 0 {
		return nil, fmt.Errorf("adapter.lora.alpha is missing or no number")
	}
	b := &builder{c: c}
	halves := map[string]half{}
	for _, t := range f.Tensors() {
		if !ggufName().MatchString(t.Name) || len(t.Dims) != 2 {
			return nil, misplaced(t.Name)
		}
		x, err := t.Floats()
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		halves[t.Name] = half{t.Name, t.Dims[1], t.Dims[0], x}
	}
	for _, t := range f.Tensors() {
		m := ggufName().FindStringSubmatch(t.Name)
		targets := ggufTargets[m[2]]
		if targets == nil {
			return nil, misplaced(t.Name)
		}
		other, ok := halves[t.Name[:len(t.Name)-1]+map[string]string{"a": "b", "b": "a"}[m[3]]]
		if !ok {
			return nil, fmt.Errorf("tensor %q has no counterpart", t.Name)
		}
		if m[3] == "b" {
			continue
		}
		if rows, _ := Shape(c, Up); m[2] == "ffn_up" && other.rows == 2*rows {
			targets = []Target{Gate, Up}
		}
		layer, _ := strconv.Atoi(m[1])
		a := halves[t.Name]
		b.add(layer, targets, found{a, other, float32(alpha) / float32(max(a.rows, 1))})
	}
	return b.adapter()
}

func (b *builder) commonScale() float32 {
	for _, p := range b.pairs {
		if p.scale != 0 {
			return p.scale
		}
	}
	return 1
}
