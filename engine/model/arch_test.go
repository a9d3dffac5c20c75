package model_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

func load(t *testing.T, e edit) *model.Model {
	t.Helper()
	m, err := model.Load(e.file(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestArchitectures checks the differences between families.
func TestArchitectures(t *testing.T) {
	type traits struct {
		Window, GlobalEvery, Ropes, Experts, ExpertsUsed, ExpertFFN, FFN int
		SharedFFN, Dense                                                 int
		NeoX, GELU, QKNorm, PostNorm, Clamped, Sinks, Sigmoid            bool
		Embed, Attn, AttnCap, LogitCap                                   float32
		Windows                                                          []int
	}
	zeros := func(name string) *gguf.Tensor { return tensor(t, name, gguf.F32, 8)[name] }
	plain := traits{Ropes: 1, FFN: 128, Embed: 1, Attn: 0.25, Windows: []int{0, 0}}
	for name, tt := range map[string]struct {
		edit
		want func(*traits)
	}{
		"llama":   {edit{}, func(*traits) {}},
		"mistral": {edit{spec: infertest.Spec{Window: 9}}, func(w *traits) { w.Window, w.Windows = 9, []int{9, 9} }},
		"mixtral": {edit{spec: infertest.Spec{Experts: 4}}, func(w *traits) {
			w.Experts, w.ExpertsUsed, w.ExpertFFN, w.FFN = 4, 2, 128, 0
		}},
		"qwen2": {edit{spec: infertest.Spec{Arch: "qwen2"}}, func(w *traits) { w.NeoX = true }},
		"qwen3": {edit{spec: infertest.Spec{Arch: "qwen3", HeadDim: 64}}, func(w *traits) { w.NeoX, w.QKNorm, w.Attn = true, true, 0.125 }},
		"qwen3moe": {edit{spec: infertest.Spec{Arch: "qwen3moe", Experts: 6, ExpertFFN: 32}}, func(w *traits) {
			w.NeoX, w.QKNorm, w.Experts, w.ExpertsUsed, w.ExpertFFN, w.FFN = true, true, 6, 2, 32, 0
		}},
		"qwen3moe, older": {edit{spec: infertest.Spec{Arch: "qwen3moe", ExpertFFN: 64}, keys: map[string]any{"qwen3moe.expert_feed_forward_length": nil}}, func(w *traits) {
			w.NeoX, w.QKNorm, w.Experts, w.ExpertsUsed, w.ExpertFFN, w.FFN = true, true, 4, 2, 64, 0
		}},
		"qwen35": {edit{spec: infertest.Spec{Arch: "qwen35"}, keys: map[string]any{"qwen35.attention.recurrent_layers": []bool{true, true, true, false, false}}}, func(w *traits) {
			w.NeoX, w.GlobalEvery, w.Windows = true, 4, []int{0, 0, 0, 0}
		}},
		"qwen35, Ollama's file": {edit{spec: infertest.Spec{Arch: "qwen35", KVHeads: 2}, keys: map[string]any{"qwen35.attention.head_count_kv": []int32{0, 0, 0, 2}, "qwen35.ssm.v_head_reordered": true},
			tensors: map[string]*gguf.Tensor{"blk.1.ssm_dt.bias": nil, "blk.1.ssm_dt": zeros("blk.1.ssm_dt"), "v.blk.0.attn_q.weight": zeros("v.blk.0.attn_q.weight")}}, func(w *traits) {
			w.NeoX, w.GlobalEvery, w.Windows = true, 4, []int{0, 0, 0, 0}
		}},
		"qwen35, further tokens": {edit{spec: infertest.Spec{Arch: "qwen35", Layers: 5}, keys: map[string]any{"qwen35.nextn_predict_layers": 1},
			tensors: map[string]*gguf.Tensor{"blk.4.attn_norm.weight": nil}}, func(w *traits) {
			w.NeoX, w.GlobalEvery, w.Windows = true, 4, []int{0, 0, 0, 0}
		}},
		"gemma": {edit{spec: infertest.Spec{Arch: "gemma"}}, func(w *traits) { w.NeoX, w.GELU, w.Embed = true, true, 8 }},
		"gemma2": {edit{spec: infertest.Spec{Arch: "gemma2"}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.Embed, w.AttnCap, w.LogitCap = true, true, true, 8, 2, 4
			w.Window, w.GlobalEvery, w.Windows = 16, 2, []int{16, 0}
		}},
		"gemma2, nothing said": {edit{spec: infertest.Spec{Arch: "gemma2", Context: 8192},
			keys: map[string]any{"gemma2.attention.sliding_window": nil, "gemma2.attn_logit_softcapping": nil, "gemma2.final_logit_softcapping": nil}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.Embed, w.AttnCap, w.LogitCap = true, true, true, 8, 50, 30
			w.Window, w.GlobalEvery, w.Windows = 4096, 2, []int{4096, 0}
		}},
		"gemma2 27B": {edit{spec: infertest.Spec{Arch: "gemma2", Layers: 46, HeadDim: 32, Window: 256}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.Embed, w.AttnCap, w.LogitCap, w.GlobalEvery = true, true, true, 8, 2, 4, 2
			w.Windows = make([]int, 46) // a window of the whole context is no window
		}},
		"gemma3": {edit{spec: infertest.Spec{Arch: "gemma3"}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.QKNorm, w.Embed, w.Ropes = true, true, true, true, 8, 2
			w.Window, w.GlobalEvery, w.Windows = 16, 6, []int{16, 16, 16, 16, 16, 0}
		}},
		"gemma3, another pattern": {edit{spec: infertest.Spec{Arch: "gemma3", Layers: 4}, keys: map[string]any{"gemma3.attention.sliding_window_pattern": 2}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.QKNorm, w.Embed, w.Ropes = true, true, true, true, 8, 2
			w.Window, w.GlobalEvery, w.Windows = 16, 2, []int{16, 0, 16, 0}
		}},
		"gemma3, listed pattern": {edit{spec: infertest.Spec{Arch: "gemma3", Layers: 4}, keys: map[string]any{"gemma3.attention.sliding_window_pattern": []bool{true, true, false, true}}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.QKNorm, w.Embed, w.Ropes = true, true, true, true, 8, 2
			w.Window, w.GlobalEvery, w.Windows = 16, 3, []int{16, 16, 0, 16}
		}},
		"gemma4": {edit{spec: infertest.Spec{Arch: "gemma4", LayerInput: 32}}, func(w *traits) {
			w.NeoX, w.GELU, w.PostNorm, w.QKNorm, w.Embed, w.Attn, w.LogitCap, w.Ropes, w.FFN = true, true, true, true, 8, 1, 30, 2, 256
			w.Window, w.GlobalEvery, w.Windows = 16, 3, []int{16, 16, 0, 16, 16, 0}
		}},
		"gpt-oss": {edit{spec: infertest.Spec{Arch: "gpt-oss", ExpertFFN: 32}}, func(w *traits) {
			w.NeoX, w.Experts, w.ExpertsUsed, w.ExpertFFN, w.FFN, w.Clamped, w.Sinks = true, 4, 2, 32, 0, true, true
			w.Window, w.GlobalEvery, w.Windows = 16, 2, []int{16, 0}
		}},
		"glm4":            {edit{spec: infertest.Spec{Arch: "glm4"}}, func(w *traits) { w.PostNorm = true }},
		"glm4, one group": {edit{spec: infertest.Spec{Arch: "glm4"}, keys: map[string]any{"glm4.expert_group_count": 1}}, func(w *traits) { w.PostNorm = true }},
		"glm4moe": {edit{spec: infertest.Spec{Arch: "glm4moe", Layers: 3, ExpertFFN: 32}, keys: map[string]any{"glm4moe.nextn_predict_layers": 1}}, func(w *traits) {
			w.NeoX, w.Experts, w.ExpertsUsed, w.ExpertFFN, w.SharedFFN, w.Dense, w.Sigmoid = true, 4, 2, 32, 32, 1, true
		}},
		"phi3": {edit{spec: infertest.Spec{Arch: "phi3", KVHeads: 2}}, func(w *traits) { w.NeoX = true }},
		"phi3 4k": {edit{spec: infertest.Spec{Arch: "phi3", Window: 20}}, func(w *traits) {
			w.NeoX, w.Window, w.Windows = true, 20, []int{20, 20}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := load(t, tt.edit)
			c, l := m.Config, m.Layers[0]
			got := traits{Window: c.Window, GlobalEvery: c.GlobalEvery, Ropes: c.Ropes, Experts: c.Experts, ExpertsUsed: c.ExpertsUsed, ExpertFFN: c.ExpertFFN, FFN: c.FFN,
				NeoX: c.RopeNeoX, GELU: c.GELU, QKNorm: l.QNorm != nil && l.KNorm != nil, PostNorm: l.AttnPostNorm != nil && l.FFNPostNorm != nil,
				Embed: c.EmbedScale, Attn: c.AttnScale, AttnCap: c.AttnSoftcap, LogitCap: c.LogitSoftcap,
				SharedFFN: c.SharedFFN, Dense: c.DenseLayers, Clamped: c.ClampedGate, Sinks: len(l.Sinks) == c.Heads, Sigmoid: c.ExpertSigmoid}
			for i, l := range m.Layers {
				got.Windows = append(got.Windows, l.Window)
				if want := min(l.Window, 1) * (c.Ropes - 1); l.Rope != want {
					t.Errorf("layer %d has rotation %d, want %d", i, l.Rope, want)
				}
			}
			want := plain
			tt.want(&want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// TestFused checks that matrices that share a tensor are its rows, in every type.
func TestFused(t *testing.T) {
	for _, typ := range []gguf.Type{gguf.F32, gguf.Q4_0, gguf.Q8_0} {
		m := load(t, edit{spec: infertest.Spec{Arch: "phi3", KVHeads: 2, Type: typ}})
		f := infertest.Open(t, infertest.Spec{Arch: "phi3", KVHeads: 2, Type: typ})
		l := &m.Layers[1]
		check := func(tensor string, parts ...*model.Matrix) {
			t.Helper()
			x, _ := f.Tensor(tensor)
			all, err := x.Floats()
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range parts {
				for r := range p.Rows {
					row := make([]float32, p.Cols)
					p.Row(row, r)
					if d := cmp.Diff(all[:p.Cols], row); d != "" {
						t.Fatalf("%s %s: part %d, row %d: -want +got\n%s", typ, tensor, i, r, d)
					}
					if typ == gguf.F32 && p.F32[r*p.Cols] != row[0] {
						t.Errorf("F32 is not Data")
					}
					all = all[p.Cols:]
				}
			}
			if len(all) > 0 {
				t.Errorf("%s: %d values belong to no part", tensor, len(all))
			}
		}
		check("blk.1.attn_qkv.weight", &l.Q, &l.K, &l.V)
		check("blk.1.ffn_up.weight", &l.Gate, &l.Up)
	}
}

// rope returns the rotation of a model at a position: angle modulo a turn and magnitude of each pair.
func rope(m *model.Model, kind, pos int) (angle, mag []float64) {
	n := m.Config.RopeDim / 2
	cos, sin := make([]float32, n), make([]float32, n)
	m.Rope(kind, pos, cos, sin)
	for i := range cos {
		angle = append(angle, math.Mod(math.Atan2(float64(sin[i]), float64(cos[i]))+2*math.Pi, 2*math.Pi))
		mag = append(mag, math.Hypot(float64(sin[i]), float64(cos[i])))
	}
	return angle, mag
}

func TestRope(t *testing.T) {
	const pos = 5
	base := func(b float64, i int) float64 { return math.Pow(b, -float64(i)/8) } // heads of 16
	for name, tt := range map[string]struct {
		spec infertest.Spec
		kind int
		lim  int
		mag  float64
		want func(i int) float64 // angle per position
	}{
		"plain":       {infertest.Spec{}, 0, 0, 1, func(i int) float64 { return base(10000, i) }},
		"linear":      {infertest.Spec{RopeScale: 4}, 0, 0, 1, func(i int) float64 { return base(10000, i) / 4 }},
		"llama 3":     {infertest.Spec{RopeFactors: true, RopeBase: 500000}, 0, 0, 1, func(i int) float64 { return base(500000, i) / (1 + float64(i)/4) }},
		"global":      {infertest.Spec{Arch: "gemma3", RopeBase: 1e6, RopeScale: 8}, 0, 0, 1, func(i int) float64 { return base(1e6, i) / 8 }},
		"local":       {infertest.Spec{Arch: "gemma3", RopeBase: 1e6, RopeScale: 8}, 1, 0, 1, func(i int) float64 { return base(10000, i) }},
		"long":        {infertest.Spec{Arch: "phi3", RopeFactors: true, RopeTrain: 64, RopeMag: 1.19}, 0, 0, 1.19, func(i int) float64 { return base(10000, i) / (1 + float64(i)/2) }},
		"short":       {infertest.Spec{Arch: "phi3", RopeFactors: true, RopeTrain: 64, RopeMag: 1.19}, 0, 64, 1.19, func(i int) float64 { return base(10000, i) / (1 + float64(i)/8) }},
		"not limited": {infertest.Spec{Arch: "phi3", RopeFactors: true, RopeTrain: 64}, 0, 65, 1, func(i int) float64 { return base(10000, i) / (1 + float64(i)/2) }},
		// pair 0 makes 10.2 turns over 64 positions, pair 1 3.2, pair 2 1.02, pair 3 0.3. With YaRN's limits of 32
		// and 1 turns the ramp goes from pair 0 (no pair makes 32 turns) to 3.
		"yarn": {infertest.Spec{RopeScaling: "yarn", RopeScale: 4, RopeTrain: 64}, 0, 0, 1 + 0.1*math.Log(4), func(i int) float64 {
			keep := 1 - min(1, float64(i)/3)
			return base(10000, i)*keep + base(10000, i)/4*(1-keep)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := load(t, edit{spec: tt.spec})
			m.Limit(tt.lim)
			angle, mag := rope(m, tt.kind, pos)
			for i := range angle {
				if want := math.Mod(tt.want(i)*pos, 2*math.Pi); math.Abs(angle[i]-want) > 1e-5 {
					t.Errorf("pair %d: angle %v, want %v", i, angle[i], want)
				}
				if math.Abs(mag[i]-tt.mag) > 1e-5 {
					t.Errorf("pair %d: magnitude %v, want %v", i, mag[i], tt.mag)
				}
			}
		})
	}
}

func TestRefusedFamilies(t *testing.T) {
	moe, gemma3, phi3 := infertest.Spec{Arch: "qwen3moe"}, infertest.Spec{Arch: "gemma3", Layers: 2}, infertest.Spec{Arch: "phi3", RopeFactors: true}
	four, mix := infertest.Spec{Arch: "gemma4", LayerInput: 32}, infertest.Spec{Arch: "gemma4", Experts: 4}
	oss, glm := infertest.Spec{Arch: "gpt-oss"}, infertest.Spec{Arch: "glm4moe"}
	q35 := infertest.Spec{Arch: "qwen35"}
	yarn := infertest.Spec{RopeScaling: "yarn", RopeScale: 4, RopeTrain: 64}
	key := func(s infertest.Spec, k string, v any) edit { return edit{spec: s, keys: map[string]any{k: v}} }
	without := func(s infertest.Spec, name string) edit {
		return edit{spec: s, tensors: map[string]*gguf.Tensor{name: nil}}
	}
	for want, e := range map[string]edit{
		`qwen3moe.expert_count is missing`:                                  key(moe, "qwen3moe.expert_count", nil),
		`qwen3moe.expert_used_count must be a whole number`:                 key(moe, "qwen3moe.expert_used_count", 0),
		`expert_used_count is 9 and expert_count only 4`:                    key(moe, "qwen3moe.expert_used_count", 9),
		`qwen3moe.expert_shared_count is 1`:                                 key(moe, "qwen3moe.expert_shared_count", 1),
		`tensor "blk.0.ffn_gate_inp.weight" has dimensions [64 4], want`:    key(moe, "qwen3moe.expert_count", 5),
		`tensor "blk.0.ffn_gate_inp.weight" is missing`:                     without(moe, "blk.0.ffn_gate_inp.weight"),
		`tensor "blk.1.ffn_down_exps.weight" is missing`:                    without(moe, "blk.1.ffn_down_exps.weight"),
		`qwen3moe.expert_count must be a whole number from 1 to 1073741824`: key(moe, "qwen3moe.expert_count", 1<<31),
		`tensor "blk.0.attn_q_norm.weight" is missing`:                      without(gemma3, "blk.0.attn_q_norm.weight"),
		`tensor "blk.1.post_ffw_norm.weight" is missing`:                    without(gemma3, "blk.1.post_ffw_norm.weight"),
		`final_logit_softcapping is -3`:                                     key(gemma3, "gemma3.final_logit_softcapping", -3.0),
		`base of local layers' rotation is -1`:                              key(gemma3, "gemma3.rope.local.freq_base", -1.0),
		`sliding_window_pattern is no repeated pattern (layer 3)`:           key(gemma3, "gemma3.attention.sliding_window_pattern", []bool{true, false, true, true}),
		`sliding_window must be a whole number`:                             key(gemma3, "gemma3.attention.sliding_window", "wide"),
		`gemma.expert_count is 3`:                                           key(infertest.Spec{Arch: "gemma"}, "gemma.expert_count", 3),
		`rope_factors_long.weight" go together, and one is missing`:         without(phi3, "rope_factors_long.weight"),
		`tensor "rope_factors_short.weight" holds 0`:                        {spec: phi3, tensors: tensor(t, "rope_factors_short.weight", gguf.F32, 8)},
		`tensor "blk.0.attn_qkv.weight" is missing`:                         without(phi3, "blk.0.attn_qkv.weight"),
		`longrope is not supported for this architecture`:                   key(infertest.Spec{}, "llama.rope.scaling.type", "longrope"),
		`yarn_beta_fast 0 and`:                                              key(yarn, "llama.rope.scaling.yarn_beta_fast", 0.0),
		`yarn_log_multiplier is 0.1`:                                        key(yarn, "llama.rope.scaling.yarn_log_multiplier", 0.1),
		`tensor "blk.1.attn_sinks.weight" is missing`:                       without(oss, "blk.1.attn_sinks.weight"),
		`tensor "blk.0.ffn_up_exps.bias" is missing`:                        without(oss, "blk.0.ffn_up_exps.bias"),
		`tensor "blk.0.ffn_down.weight" is missing`:                         without(glm, "blk.0.ffn_down.weight"),
		`tensor "blk.1.ffn_gate_shexp.weight" has no place`:                 key(glm, "glm4moe.expert_shared_count", 0),
		`glm4moe.expert_gating_func is 3: want 1 (softmax) or 2 (sigmoid)`:  key(glm, "glm4moe.expert_gating_func", 3),
		`gpt-oss.rope.freq_base_swa is 5`:                                   key(oss, "gpt-oss.rope.freq_base_swa", 5.0),
		`expert_weights_scale is -1`:                                        key(glm, "glm4moe.expert_weights_scale", -1.0),
		`glm4moe.expert_group_count is 2`:                                   key(glm, "glm4moe.expert_group_count", 2),
		`glm4moe.feed_forward_length is missing`:                            key(glm, "glm4moe.feed_forward_length", nil),
		`gemma4.expert_used_count is missing`:                               key(four, "gemma4.expert_count", 8),
		`shared_kv_layers is 4 of 6: want at least 3 layers with keys`:      key(four, "gemma4.attention.shared_kv_layers", 4),
		`gemma4 has layers of one kind only`:                                key(four, "gemma4.attention.sliding_window_pattern", []bool{true, true, true, true, true, true}),
		`gemma4 has layers of other shapes than its pattern says (layer 4)`: key(four, "gemma4.attention.head_count_kv", []int32{4, 4, 2, 4, 2, 2}),
		`gemma4.block_count is 1000000 and the file has`:                    key(four, "gemma4.block_count", 1000000),
		`and rope.dimension_count_swa 9: want a multiple`:                   key(four, "gemma4.rope.dimension_count_swa", 9),
		`tensor "per_layer_proj_norm.weight" is missing`:                    without(four, "per_layer_proj_norm.weight"),
		`tensor "blk.3.ffn_gate_inp.scale" is missing`:                      without(mix, "blk.3.ffn_gate_inp.scale"),
		`tensor "blk.0.ffn_gate_exps.weight" is missing`:                    without(mix, "blk.0.ffn_gate_up_exps.weight"),
		`tensor "rope_freqs.weight" is missing`:                             without(four, "rope_freqs.weight"),
		`tensor "blk.5.proj.weight" is missing`:                             without(four, "blk.5.proj.weight"),
		`tensor "blk.2.attn_k.weight" is missing`:                           without(four, "blk.2.attn_k.weight"),
		`qwen35.ssm.inner_size is 65, with 8 heads of width 8 on 4 heads`:   key(q35, "qwen35.ssm.inner_size", 65),
		`with 8 heads of width 8 on 3 heads of keys: want the product`:      key(q35, "qwen35.ssm.group_count", 3),
		`qwen35.ssm.conv_kernel is missing`:                                 key(q35, "qwen35.ssm.conv_kernel", nil),
		`qwen35.full_attention_interval is 5 of 4 layers`:                   key(q35, "qwen35.full_attention_interval", 5),
		`qwen35.full_attention_interval is 1 of 4 layers`:                   key(q35, "qwen35.full_attention_interval", 1),
		`another pattern than each 4 layers (layer 1)`:                      key(q35, "qwen35.attention.recurrent_layers", []bool{true, false, true, false}),
		`tensor "blk.0.ssm_conv1d.weight" has dimensions [4 128], want [3`:  key(q35, "qwen35.ssm.conv_kernel", 3),
		`qwen35.ssm.v_head_reordered is false`:                              key(q35, "qwen35.ssm.v_head_reordered", false),
		`tensor "blk.1.ssm_a" is missing`:                                   without(q35, "blk.1.ssm_a"),
		`tensor "blk.3.attn_gate.weight" has no place`:                      {spec: q35, tensors: tensor(t, "blk.3.attn_gate.weight", gguf.F32, 4)},
		`models that see images are not supported`:                          key(infertest.Spec{Arch: "glm4"}, "glm4.rope.dimension_sections", []int32{8, 12, 12, 0}),
		`tensor "v.blk.0.attn_q.weight" has no place`:                       {tensors: tensor(t, "v.blk.0.attn_q.weight", gguf.F32, 4)},
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := model.Load(e.file(t)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
	// Gemma 3's tensors for images are ignored.
	load(t, edit{spec: gemma3, tensors: tensor(t, "v.blk.0.attn_q.weight", gguf.F32, 4)})
}

// FuzzLoad changes bytes of generated models of all architectures, and uses each model that loads.
func FuzzLoad(f *testing.F) {
	var files [][]byte
	for i, arch := range model.Architectures() {
		if strings.Contains(arch, "bert") { // their files are made elsewhere
			data, err := os.ReadFile("../testdata/encoders/" + arch + ".gguf")
			if err != nil {
				f.Fatal(err)
			}
			files = append(files, data)
			f.Add(uint8(i), uint32(100), []byte{0xff, 0xff, 0xff, 0xff}, uint32(0))
			continue
		}
		data, err := infertest.Bytes(infertest.Spec{Arch: arch, Type: []gguf.Type{gguf.Q4_0, gguf.F16, gguf.Q5_1}[i%3], Dim: 32, HeadDim: 8, FFN: 32, Layers: 2, RopeFactors: arch == "phi3"})
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, data)
		f.Add(uint8(i), uint32(100), []byte{0xff, 0xff, 0xff, 0xff}, uint32(0))
		f.Add(uint8(i), uint32(400+40*i), []byte{0}, uint32(len(data)-3))
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint32, change []byte, end uint32) {
		data := append([]byte(nil), files[int(which)%len(files)]...)
		copy(data[int(at)%len(data):], change)
		if n := int(end); n > 0 && n < len(data) {
			data = data[:n]
		}
		file, err := gguf.Parse(data)
		if err != nil {
			return
		}
		m, err := model.Load(file)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		use(t, m)
	})
}

// use reads everything that a program reads when it loads a model.
func use(t *testing.T, m *model.Model) {
	t.Helper()
	c := m.Config
	if c.Encoder && len(m.OutputNormBias) != c.Dim {
		t.Error("no norm of the output")
	}
	row := make([]float32, max(c.Dim, c.FFN, c.ExpertFFN, c.Heads*c.HeadDim, c.DeltaHeads*c.DeltaDim))
	m.Embed.Row(row[:c.Dim], c.Vocab-1)
	m.Output.Row(row[:c.Dim], 0)
	for i := range m.Layers {
		m.Layers[i].Matrices(func(x *model.Matrix) { x.Row(row[:x.Cols], x.Rows-1) })
	}
	cos, sin := make([]float32, c.RopeDim/2), make([]float32, c.RopeDim/2)
	for kind := range c.Ropes {
		m.Rope(kind, c.Context-1, cos, sin)
	}
}
