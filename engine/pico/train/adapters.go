package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// adapterDir is where the shipped adapters are.
const adapterDir = "engine/pico/adapters"

// trained is the output of adapter.py: weights, whose names end in lora_a and lora_b, and their scale.
type trained struct {
	*weights
	Args struct {
		Rank, Heads int
		Alpha       float32
		KVHeads     int `json:"kv_heads"`
		Dim         int
	}
}

func readTrained(path string) (*trained, error) {
	w, err := readWeights(path)
	if err != nil {
		return nil, err
	}
	t := &trained{weights: w}
	index, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, fmt.Errorf("read the index of the weights: %w", err)
	}
	return t, json.Unmarshal(index, t)
}

func (t *trained) names() []string {
	var names []string
	for name := range t.Tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// writeAdapters writes one adapter in each format that the engine reads: shout as GGUF, pirate as PEFT saves it.
func writeAdapters(shout, pirate string) error {
	s, err := readTrained(shout)
	if err != nil {
		return err
	}
	if err := s.writeGGUF(filepath.Join(adapterDir, "shout.gguf")); err != nil {
		return err
	}
	p, err := readTrained(pirate)
	if err != nil {
		return err
	}
	return p.writePEFT(filepath.Join(adapterDir, "pirate"))
}

func (t *trained) writeGGUF(path string) error {
	var file bytes.Buffer
	out := gguf.NewWriter(&file)
	out.SetString("general.type", "adapter")
	out.SetString("general.architecture", "llama")
	out.SetString("general.name", strings.TrimSuffix(filepath.Base(path), ".gguf"))
	out.SetString("general.license", "apache-2.0")
	out.SetString("adapter.type", "lora")
	out.SetFloat32("adapter.lora.alpha", t.Args.Alpha)
	for _, name := range t.names() {
		x, shape, err := t.floats(name)
		if err != nil {
			return err
		}
		data, err := gguf.Encode(gguf.F16, x)
		if err != nil {
			return fmt.Errorf("encode tensor %s: %w", name, err)
		}
		part := name[:len(name)-len(".lora_a")]
		out.AddTensor(part+".weight"+name[len(part):], []int{shape[1], shape[0]}, gguf.F16, data)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return os.WriteFile(path, file.Bytes(), 0o644)
}

// modules are the names of the projections in Hugging Face's llama.
var modules = map[string]string{
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

func (t *trained) writePEFT(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the adapter's folder: %w", err)
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var body []byte
	for _, name := range t.names() {
		x, shape, err := t.floats(name)
		if err != nil {
			return err
		}
		parts := strings.Split(name, ".") // blk.N.attn_q.lora_a
		if heads := map[string]int{"attn_q": t.Args.Heads, "attn_k": t.Args.KVHeads}[parts[2]]; heads > 0 && parts[3] == "lora_b" {
			x = halves(x, heads, t.Args.Dim/t.Args.Heads, shape[1])
		}
		full := "base_model.model.model.layers." + parts[1] + "." + modules[parts[2]] + ".lora_" + strings.ToUpper(parts[3][5:]) + ".weight"
		from := len(body)
		for _, v := range x {
			body = binary.LittleEndian.AppendUint16(body, gguf.F32ToF16(v))
		}
		header[full] = map[string]any{"dtype": "F16", "shape": shape, "data_offsets": []int{from, len(body)}}
	}
	data, err := json.Marshal(header)
	if err != nil {
		return err
	}
	data = append(data, bytes.Repeat([]byte{' '}, (8-len(data)%8)%8)...)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(data))), data...)
	if err := os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), append(file, body...), 0o644); err != nil {
		return fmt.Errorf("write the adapter's weights: %w", err)
	}
	config, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "pico", "bias": "none",
		"r": t.Args.Rank, "lora_alpha": t.Args.Alpha, "lora_dropout": 0, "fan_in_fan_out": false, "use_rslora": false, "use_dora": false,
		"target_modules": []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "adapter_config.json"), append(config, '\n'), 0o644)
}

// halves reorders the rows of queries and keys from GGUF's layout, in which the two numbers that rotate together are
// neighbours, to Hugging Face's, in which they are half a head apart.
func halves(x []float32, heads, headDim, cols int) []float32 {
	out := make([]float32, len(x))
	for h := range heads {
		for j := range headDim {
			to := h*headDim + j%2*(headDim/2) + j/2
			copy(out[to*cols:][:cols], x[(h*headDim+j)*cols:][:cols])
		}
	}
	return out
}
