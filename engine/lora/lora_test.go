package lora

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

// small is a shape whose sizes all differ.
var small = model.Config{Arch: "llama", Layers: 2, Dim: 12, Heads: 2, KVHeads: 1, HeadDim: 4, FFN: 20}

// numbers returns numbers that are distinct and exact in every type.
func numbers(n, from int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(from+i) / 64
	}
	return x
}

type tensor struct {
	name       string
	rows, cols int
	kind       string // of safetensors
	x          []float32
}

func safetensors(tensors ...tensor) []byte {
	header, body := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte{}
	for _, t := range tensors {
		from := len(body)
		for _, v := range t.x {
			switch t.kind {
			case "F32":
				body = binary.LittleEndian.AppendUint32(body, math.Float32bits(v))
			case "F16":
				body = binary.LittleEndian.AppendUint16(body, gguf.F32ToF16(v))
			default:
				body = binary.LittleEndian.AppendUint16(body, gguf.F32ToBF16(v))
			}
		}
		header[t.name] = map[string]any{"dtype": t.kind, "shape": []int{t.rows, t.cols}, "data_offsets": []int{from, len(body)}}
	}
	h, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), body...)
}

// ggufFile writes an adapter; set changes its metadata.
func ggufFile(t testing.TB, set map[string]string, tensors ...tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gguf.NewWriter(&b)
	for key, value := range map[string]string{"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"} {
		if v, ok := set[key]; ok {
			value = v
		}
		w.Set(key, value)
	}
	w.Set("adapter.lora.alpha", 6.0)
	for _, x := range tensors {
		data, err := gguf.Encode(gguf.F32, x.x)
		if err != nil {
			t.Fatal(err)
		}
		w.AddTensor(x.name, []int{x.cols, x.rows}, gguf.F32, data)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func peft(config string, tensors ...tensor) fstest.MapFS {
	return fstest.MapFS{configFile: {Data: []byte(config)}, weightsFile: {Data: safetensors(tensors...)}}
}

const plainConfig = `{"peft_type":"LORA","r":3,"lora_alpha":6,"bias":"none"}`

func module(layer int, name, half string) string {
	return fmt.Sprintf("base_model.model.model.layers.%d.%s.lora_%s.weight", layer, name, half)
}

// TestFormatsAgree checks that the same matrices in both formats make the same adapter, up to the order of rows in
// queries and keys.
func TestFormatsAgree(t *testing.T) {
	a, b := numbers(3*12, 1), numbers(8*3, 100)
	fromGGUF, err := ParseGGUF(ggufFile(t, nil,
		tensor{"blk.1.attn_v.weight.lora_a", 3, 12, "", a}, tensor{"blk.1.attn_v.weight.lora_b", 4, 3, "", b[:12]}), small)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"F32", "F16", "BF16"} {
		fromPEFT, err := ReadPEFT(peft(plainConfig,
			tensor{module(1, "self_attn.v_proj", "A"), 3, 12, kind, a}, tensor{module(1, "self_attn.v_proj", "B"), 4, 3, kind, b[:12]}), small)
		if err != nil {
			t.Fatal(err)
		}
		if fromPEFT.Rank != 3 || fromPEFT.Scale != 2 || fromGGUF.Scale != 2 {
			t.Errorf("rank %d, scales %v and %v, want 3, 2 and 2", fromPEFT.Rank, fromPEFT.Scale, fromGGUF.Scale)
		}
		got, want := fromPEFT.Layers[1][V], fromGGUF.Layers[1][V]
		if fmt.Sprint(got) != fmt.Sprint(want) || fromPEFT.Layers[0] != [NumTargets]*Pair{} {
			t.Errorf("%s: %v from PEFT, %v from GGUF", kind, got, want)
		}
	}
}

// TestQueriesAreInterleaved checks that row r of a head in Hugging Face's order goes to the same rotation pair's
// place in GGUF.
func TestQueriesAreInterleaved(t *testing.T) {
	b := numbers(8*3, 0)
	config := small
	read := func() *Pair {
		a, err := ReadPEFT(peft(plainConfig,
			tensor{module(0, "self_attn.q_proj", "A"), 3, 12, "F32", numbers(36, 1)}, tensor{module(0, "self_attn.q_proj", "B"), 8, 3, "F32", b}), config)
		if err != nil {
			t.Fatal(err)
		}
		return a.Layers[0][Q]
	}
	var order []int
	for r := range 8 {
		order = append(order, int(read().B[r*3]*64)/3)
	}
	if want := "[0 2 1 3 4 6 5 7]"; fmt.Sprint(order) != want {
		t.Errorf("rows %v, want %s", order, want)
	}
	config.RopeNeoX = true
	if got := read().B[3] * 64 / 3; got != 1 {
		t.Errorf("row 1 of a model with halves is row %v of the file, want 1", got)
	}
}

// TestPatterns checks that different ranks and scales become one rank and one scale with the same products.
func TestPatterns(t *testing.T) {
	a, err := ReadPEFT(peft(`{"peft_type":"LORA","r":3,"lora_alpha":6,"rank_pattern":{"k_proj":1},"alpha_pattern":{"k_proj":5}}`,
		tensor{module(0, "self_attn.v_proj", "A"), 3, 12, "F32", numbers(36, 1)}, tensor{module(0, "self_attn.v_proj", "B"), 4, 3, "F32", numbers(12, 1)},
		tensor{module(1, "self_attn.k_proj", "A"), 1, 12, "F32", numbers(12, 1)}, tensor{module(1, "self_attn.k_proj", "B"), 4, 1, "F32", []float32{1, 1, 1, 1}}), small)
	if err != nil {
		t.Fatal(err)
	}
	k := a.Layers[1][K]
	if a.Rank != 3 || len(k.A) != 36 || len(k.B) != 12 || k.A[12] != 0 {
		t.Fatalf("rank %d, A %v, B %v: want the smaller pair filled up to rank 3", a.Rank, k.A, k.B)
	}
	if got := a.Scale * k.B[0]; got != 5 {
		t.Errorf("k is scaled by %v, want alpha 5 / rank 1", got)
	}
}

func TestFusedMatricesAreCut(t *testing.T) {
	b := numbers(16*2, 0)
	a, err := ParseGGUF(ggufFile(t, nil,
		tensor{"blk.0.attn_qkv.weight.lora_a", 2, 12, "", numbers(24, 1)}, tensor{"blk.0.attn_qkv.weight.lora_b", 16, 2, "", b},
		tensor{"blk.0.ffn_up.weight.lora_a", 2, 12, "", numbers(24, 1)}, tensor{"blk.0.ffn_up.weight.lora_b", 40, 2, "", numbers(80, 0)}), small)
	if err != nil {
		t.Fatal(err)
	}
	l := a.Layers[0]
	if l[Q].B[0] != 0 || l[K].B[0] != b[16] || l[V].B[0] != b[24] || l[Up].B[0] != 40./64 || len(l[Gate].B) != 40 {
		t.Errorf("cut at the wrong rows: %v %v %v", l[K].B, l[V].B, l[Up].B)
	}
}

func TestRefusals(t *testing.T) {
	pair := func(a, b tensor) []tensor { return []tensor{a, b} }
	v := func(rank, cols, rows int) []tensor {
		return pair(tensor{module(0, "self_attn.v_proj", "A"), rank, cols, "F32", numbers(rank*cols, 1)}, tensor{module(0, "self_attn.v_proj", "B"), rows, rank, "F32", numbers(rows*rank, 1)})
	}
	moe := small
	moe.Experts = 4
	nan := v(1, 12, 4)
	nan[0].x[3] = float32(math.NaN())
	for _, tt := range []struct {
		name    string
		config  string
		model   model.Config
		tensors []tensor
		want    string
	}{
		{"wrong width", plainConfig, small, v(3, 13, 4), "takes 13 values, the model's matrix takes 12"},
		{"wrong height", plainConfig, small, v(3, 12, 5), "gives 5 values, the model's matrix gives 4"},
		{"no rank", plainConfig, small, v(0, 12, 4), "rank 0"},
		{"a diverged training", plainConfig, small, nan, "NaN"},
		{"no tensors", plainConfig, small, nil, "changes nothing"},
		{"one half", plainConfig, small, v(3, 12, 4)[:1], "no counterpart"},
		{"the head", plainConfig, small, []tensor{{"base_model.model.lm_head.lora_A.weight", 3, 12, "F32", numbers(36, 1)}}, "has no place"},
		{"a layer too many", plainConfig, small, pair(tensor{module(2, "self_attn.v_proj", "A"), 3, 12, "F32", numbers(36, 1)}, tensor{module(2, "self_attn.v_proj", "B"), 4, 3, "F32", numbers(12, 1)}), "layer 2"},
		{"experts", plainConfig, moe, pair(tensor{module(0, "mlp.up_proj", "A"), 3, 12, "F32", numbers(36, 1)}, tensor{module(0, "mlp.up_proj", "B"), 20, 3, "F32", numbers(60, 1)}), "mixture of experts"},
		{"an expert of Qwen's", plainConfig, moe, []tensor{{module(0, "mlp.experts.3.up_proj", "A"), 3, 12, "F32", numbers(36, 1)}}, "mixture of experts"},
		{"an expert of Mixtral's", plainConfig, moe, []tensor{{module(0, "block_sparse_moe.experts.3.w1", "A"), 3, 12, "F32", numbers(36, 1)}}, "mixture of experts"},
		{"a router", plainConfig, moe, []tensor{{module(0, "mlp.gate", "A"), 3, 12, "F32", numbers(36, 1)}}, "mixture of experts"},
		{"two patterns", `{"peft_type":"LORA","r":3,"alpha_pattern":{"v_proj":1,"self_attn.v_proj":2}}`, small, v(3, 12, 4), "want one"},
		{"DoRA", `{"peft_type":"LORA","r":3,"use_dora":true}`, small, v(3, 12, 4), "DoRA"},
		{"biases", `{"peft_type":"LORA","r":3,"bias":"all"}`, small, v(3, 12, 4), "bias"},
		{"modules", `{"peft_type":"LORA","r":3,"modules_to_save":["lm_head"]}`, small, v(3, 12, 4), "modules_to_save"},
		{"another kind", `{"peft_type":"IA3","r":3}`, small, v(3, 12, 4), "IA3"},
		{"a rank out of range", `{"peft_type":"LORA","r":1000}`, small, v(3, 12, 4), "r is 1000"},
		{"a broken pattern", `{"peft_type":"LORA","r":3,"alpha_pattern":{"(":1}}`, small, v(3, 12, 4), "alpha_pattern"},
		{"no JSON", `{`, small, v(3, 12, 4), configFile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadPEFT(peft(tt.config, tt.tensors...), tt.model)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestRefusalsOfGGUF(t *testing.T) {
	a, b := tensor{"blk.0.attn_v.weight.lora_a", 3, 12, "", numbers(36, 1)}, tensor{"blk.0.attn_v.weight.lora_b", 4, 3, "", numbers(12, 1)}
	for _, tt := range []struct {
		name    string
		set     map[string]string
		tensors []tensor
		want    string
	}{
		{"a model", map[string]string{"general.type": "model"}, []tensor{a, b}, "want an adapter"},
		{"another architecture", map[string]string{"general.architecture": "qwen2"}, []tensor{a, b}, `"qwen2"`},
		{"a control vector", map[string]string{"adapter.type": "control"}, []tensor{a, b}, "only lora"},
		{"half a pair", nil, []tensor{b}, "no counterpart"},
		{"an embedding", nil, []tensor{{"token_embd.weight.lora_a", 3, 12, "", numbers(36, 1)}}, "has no place"},
		{"experts", nil, []tensor{{"blk.0.ffn_up_exps.weight.lora_a", 3, 12, "", numbers(36, 1)}}, "mixture of experts"},
		{"a router", nil, []tensor{{"blk.0.ffn_gate_inp.weight.lora_a", 3, 12, "", numbers(36, 1)}, {"blk.0.ffn_gate_inp.weight.lora_b", 4, 3, "", numbers(12, 1)}}, "mixture of experts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseGGUF(ggufFile(t, tt.set, tt.tensors...), small)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.gguf")
	data := ggufFile(t, nil, tensor{"blk.0.attn_v.weight.lora_a", 3, 12, "", numbers(36, 1)}, tensor{"blk.0.attn_v.weight.lora_b", 4, 3, "", numbers(12, 1)})
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := Open(file, small); err != nil || a.Name != "a.gguf" {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := Open(filepath.Join(dir, "none"), small); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open(dir, small); err == nil || !strings.Contains(err.Error(), configFile) {
		t.Errorf("a folder without an adapter: %v", err)
	}
	named := filepath.Join(t.TempDir(), "other.safetensors")
	for _, name := range []string{configFile, weightsFile, "other.safetensors"} {
		data := safetensors(tensor{module(0, "self_attn.v_proj", "A"), 3, 12, "F32", numbers(36, 1)}, tensor{module(0, "self_attn.v_proj", "B"), 4, 3, "F32", numbers(12, 1)})
		if name == configFile {
			data = []byte(plainConfig)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(named), name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(filepath.Join(filepath.Dir(named), weightsFile), small); err != nil {
		t.Error(err)
	}
	if _, err := Open(named, small); err == nil || !strings.Contains(err.Error(), weightsFile) {
		t.Errorf("another name than PEFT's: %v, want an error, since its neighbour would be read", err)
	}
	for _, large := range []string{file, filepath.Join(filepath.Dir(named), weightsFile)} { // as a model would be; it has holes in place of bytes
		if err := os.Truncate(large, 1<<30); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(large, small); err == nil || !strings.Contains(err.Error(), "1073741824 bytes, and adapters for this model have less than") {
			t.Errorf("%s that is too large: %v", large, err)
		}
	}
	if _, err := Open("/dev/zero", small); err == nil {
		t.Error("a device is taken for an adapter")
	}
}

func TestTensorsThatOverlap(t *testing.T) {
	header := `{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if _, err := parseSafetensors(append(data, make([]byte, 16)...)); err == nil || !strings.Contains(err.Error(), "one over the other") {
		t.Errorf("two tensors at one place: %v", err)
	}
	if out, err := parseSafetensors(append(data, make([]byte, 32)...)); err != nil || len(out) != 2 {
		t.Errorf("bytes left over: %v, %v", out, err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safetensors(tensor{"x", 2, 3, "F16", numbers(6, 1)}))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := parseSafetensors(data)
		for _, h := range out {
			if err != nil || len(h.x) != h.rows*h.cols || len(h.x) > len(data) {
				t.Fatalf("%d numbers for [%d, %d] from %d bytes, %v", len(h.x), h.rows, h.cols, len(data), err)
			}
		}
	})
}

func FuzzParseGGUF(f *testing.F) {
	f.Add(ggufFile(f, nil, tensor{"blk.0.attn_v.weight.lora_a", 3, 12, "", numbers(36, 1)}, tensor{"blk.0.attn_v.weight.lora_b", 4, 3, "", numbers(12, 1)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseGGUF(data, small)
		if (a == nil) == (err == nil) {
			t.Fatalf("%v and %v", a, err)
		}
	})
}
