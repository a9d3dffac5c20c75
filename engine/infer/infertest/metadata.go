package infertest

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// fileTypes are the numbers of general.file_type, from which programs know the name of the quantisation.
var fileTypes = map[gguf.Type]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q8_0: 7, gguf.Q5_0: 8, gguf.Q5_1: 9, gguf.Q2_K: 10,
	gguf.Q3_K: 12, gguf.Q4_K: 15, gguf.Q5_K: 17, gguf.Q6_K: 18, gguf.IQ4_NL: 25, gguf.IQ4_XS: 30, gguf.BF16: 32, gguf.MXFP4: 38,
}

// metadata sets the keys that describe the shape, named as by llama.cpp's converter.
func (s Spec) metadata(g *gguf.Writer) {
	a := s.Arch + "."
	g.SetString("general.architecture", s.Arch)
	g.SetString("general.name", fmt.Sprintf("random-%s-%dx%d", s.Arch, s.Layers, s.Dim))
	g.SetUint32("general.alignment", 32)
	g.SetUint32("general.file_type", fileTypes[s.types()[0]])
	g.SetUint32("general.quantization_version", 2)
	g.SetUint32(a+"context_length", uint32(s.Context))
	g.SetUint32(a+"embedding_length", uint32(s.Dim))
	g.SetUint32(a+"block_count", uint32(s.Layers))
	g.SetUint32(a+"feed_forward_length", uint32(s.FFN))
	g.SetUint32(a+"attention.head_count", uint32(s.Heads))
	g.SetUint32(a+"attention.head_count_kv", uint32(s.KVHeads))
	g.SetUint32(a+"attention.key_length", uint32(s.HeadDim))
	g.SetUint32(a+"attention.value_length", uint32(s.HeadDim))
	g.SetFloat32(a+"attention.layer_norm_rms_epsilon", 1e-5)
	g.SetUint32(a+"vocab_size", uint32(s.Vocab))
	s.rope(g, a)
	if s.Window > 0 {
		g.SetUint32(a+"attention.sliding_window", uint32(s.Window))
	}
	if s.AttnSoftcap > 0 {
		g.SetFloat32(a+"attn_logit_softcapping", s.AttnSoftcap)
	}
	if s.LogitSoftcap > 0 {
		g.SetFloat32(a+"final_logit_softcapping", s.LogitSoftcap)
	}
	if s.Experts > 0 {
		g.SetUint32(a+"expert_count", uint32(s.Experts))
		g.SetUint32(a+"expert_used_count", uint32(s.ExpertsUsed))
		if s.mixture() {
			g.SetUint32(a+"expert_feed_forward_length", uint32(s.ExpertFFN))
		}
		if s.Arch == "glm4moe" {
			g.SetUint32(a+"expert_shared_count", 1)
			g.SetUint32(a+"leading_dense_block_count", 1)
			g.SetUint32(a+"expert_gating_func", 2) // sigmoid
			g.SetFloat32(a+"expert_weights_scale", 1.5)
			g.SetBool(a+"expert_weights_norm", true)
		}
	}
}

func (s Spec) rope(g *gguf.Writer, a string) {
	g.SetFloat32(a+"rope.freq_base", s.RopeBase)
	g.SetUint32(a+"rope.dimension_count", uint32(s.RopeDim))
	kind := s.RopeScaling
	if kind == "" && s.RopeScale > 0 {
		kind = "linear"
	}
	if kind != "" {
		g.SetString(a+"rope.scaling.type", kind)
	}
	if s.RopeScale > 0 {
		g.SetFloat32(a+"rope.scaling.factor", s.RopeScale)
	}
	if s.RopeTrain != s.Context {
		g.SetUint32(a+"rope.scaling.original_context_length", uint32(s.RopeTrain))
	}
	if s.RopeMag > 0 {
		g.SetFloat32(a+"rope.scaling.attn_factor", s.RopeMag)
	}
}
