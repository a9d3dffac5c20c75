package lora

import (
	"fmt"
	"io"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

var ggufNames = [NumTargets]string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}

// Write writes the adapter of a model of shape c as a GGUF file in F32.
func (a *Adapter) Write(w io.Writer, c model.Config) error {
	out := gguf.NewWriter(w)
	out.Set("general.type", "adapter")
	out.Set("general.architecture", c.Arch)
	out.Set("adapter.type", "lora")
	out.Set("adapter.lora.alpha", a.Scale*float32(a.Rank))
	for i := range a.Layers {
		for t, p := range a.Layers[i] {
			if p == nil {
				continue
			}
			rows, cols := Shape(c, Target(t))
			name := fmt.Sprintf("blk.%d.%s.weight.lora_", i, ggufNames[t])
			for _, h := range []half{{name + "a", a.Rank, cols, p.A}, {name + "b", rows, a.Rank, p.B}} {
				data, err := gguf.Encode(gguf.F32, h.x)
				if err != nil {
					return fmt.Errorf("write the adapter: %w", err)
				}
				out.AddTensor(h.name, []int{h.cols, h.rows}, gguf.F32, data)
			}
		}
	}
	return out.Flush()
}
