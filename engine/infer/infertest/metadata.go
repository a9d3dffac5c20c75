package infertest

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// fileTypes are the numbers of general.file_type.
var fileTypes = map[gguf.Type]uint32{
	gguf.F32: 0, gguf.F16: 1, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q8_0: 7, gguf.Q5_0: 8, gguf.Q5_1: 9, gguf.Q2_K: 10,
	gguf.Q3_K: 12, gguf.Q4_K: 15, gguf.Q5_K: 17, gguf.Q6_K: 18, gguf.IQ4_NL: 25, gguf.IQ4_XS: 30, gguf.BF16: 32, gguf.MXFP4: 38,
}

// metadata sets the keys of the shape, named as by llama.cpp's converter.
func (s Spec) metadata(g *gguf.Writer) {
	a := s.Arch + "."
	g.Set("general.architecture", s.Arch)
	g.Set("general.name", fmt.Sprintf("random-%s-%dx%d", s.Arch, s.Layers, s.Dim))
	g.Set("general.alignment", 32)
	g.Set("general.file_type", fileTypes[s.types()[0]])
	g.Set("general.quantization_version", 2)
	g.Set(a+"context_length", s.Context)
	g.Set(a+"embedding_length", s.Dim)
	g.Set(a+"block_count", s.Layers)
	if s.Arch != "gemma4" {
		g.Set(a+"feed_forward_length", s.FFN)
	}
	g.Set(a+"attention.head_count", s.Heads)
	if s.Arch != "gemma4" {
		g.Set(a+"attention.head_count_kv", s.KVHeads)
	}
	g.Set(a+"attention.key_length", s.HeadDim)
	g.Set(a+"attention.value_length", s.HeadDim)
	g.Set(a+"attention.layer_norm_rms_epsilon", 1e-5)
	g.Set(a+"vocab_size", s.Vocab)
	s.rope(g, a)
	if s.Window > 0 {
		g.Set(a+"attention.sliding_window", s.Window)
	}
	if s.Arch == "gemma4" {
		s.gemma4(g, a)
	}
	if s.Arch == "qwen35" {
		g.Set(a+"full_attention_interval", s.interval())
		g.Set(a+"ssm.conv_kernel", deltaConv)
		g.Set(a+"ssm.state_size", s.HeadDim/2)
		g.Set(a+"ssm.group_count", s.Heads)
		g.Set(a+"ssm.time_step_rank", 2*s.Heads)
		g.Set(a+"ssm.inner_size", s.Heads*s.HeadDim)
		g.Set(a+"rope.dimension_sections", []int32{11, 11, 10, 0})
	}
	if s.AttnSoftcap > 0 {
		g.Set(a+"attn_logit_softcapping", s.AttnSoftcap)
	}
	if s.LogitSoftcap > 0 {
		g.Set(a+"final_logit_softcapping", s.LogitSoftcap)
	}
	if s.Experts > 0 {
		g.Set(a+"expert_count", s.Experts)
		g.Set(a+"expert_used_count", s.ExpertsUsed)
		if s.mixture() || s.Arch == "gemma4" {
			g.Set(a+"expert_feed_forward_length", s.ExpertFFN)
		}
		if s.Arch == "glm4moe" {
			g.Set(a+"expert_shared_count", 1)
			g.Set(a+"leading_dense_block_count", 1)
			g.Set(a+"expert_gating_func", 2)
			g.Set(a+"expert_weights_scale", 1.5)
			g.Set(a+"expert_weights_norm", true)
		}
	}
}

func (s Spec) gemma4(g *gguf.Writer, a string) {
	windows, kv, ffn := make([]bool, s.Layers), make([]int32, s.Layers), make([]int32, s.Layers)
	for l := range s.Layers {
		windows[l] = s.local(l)
		_, heads := s.shape(l)
		kv[l], ffn[l] = int32(heads), int32(s.ffn(l))
	}
	g.Set(a+"attention.sliding_window_pattern", windows)
	g.Set(a+"attention.head_count_kv", kv)
	g.Set(a+"feed_forward_length", ffn)
	g.Set(a+"attention.key_length_swa", s.HeadDim/2)
	g.Set(a+"attention.value_length_swa", s.HeadDim/2)
	g.Set(a+"rope.dimension_count_swa", s.HeadDim/2)
	g.Set(a+"rope.freq_base_swa", 10000.0)
	g.Set(a+"embedding_length_per_layer_input", s.LayerInput)
	if s.LayerInput > 0 {
		g.Set(a+"attention.shared_kv_layers", s.Layers/2)
	}
}

// deltaConv is the width of a delta net's convolution. Its heads are twice as many as the others, and half as wide;
// two share the keys.
const deltaConv = 4

// Every interval-th layer of qwen35 has attention.
func (s Spec) interval() int { return max(2, min(4, s.Layers)) }

func (s Spec) delta(l int) bool { return s.Arch == "qwen35" && (l+1)%s.interval() != 0 }

// Layers of gemma4 that are local have a window, shared ones no keys and values.
func (s Spec) local(l int) bool  { return s.Arch == "gemma4" && (l+1)%3 != 0 }
func (s Spec) shared(l int) bool { return s.LayerInput > 0 && l >= s.Layers/2 }

func (s Spec) shape(l int) (head, kv int) {
	if s.local(l) {
		return s.HeadDim / 2, 2 * s.KVHeads
	}
	return s.HeadDim, s.KVHeads
}

func (s Spec) ffn(l int) int {
	if s.shared(l) {
		return 2 * s.FFN
	}
	return s.FFN
}

func (s Spec) rope(g *gguf.Writer, a string) {
	g.Set(a+"rope.freq_base", s.RopeBase)
	g.Set(a+"rope.dimension_count", s.RopeDim)
	kind := s.RopeScaling
	if kind == "" && s.RopeScale > 0 {
		kind = "linear"
	}
	if kind != "" {
		g.Set(a+"rope.scaling.type", kind)
	}
	if s.RopeScale > 0 {
		g.Set(a+"rope.scaling.factor", s.RopeScale)
	}
	if s.RopeTrain != s.Context {
		g.Set(a+"rope.scaling.original_context_length", s.RopeTrain)
	}
	if s.RopeMag > 0 {
		g.Set(a+"rope.scaling.attn_factor", s.RopeMag)
	}
}
