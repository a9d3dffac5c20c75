package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// chatTemplate is ChatML without a system message of its own.
const chatTemplate = `{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}` +
	`{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// contextLength is how many positions pico is trained on.
const contextLength = 512

// weights is what train.py leaves: the JSON index and the float32 file beside it.
type weights struct {
	Args struct {
		Dim, Layers, Heads, FFN int
		KVHeads                 int `json:"kv_heads"`
	}
	Tensors map[string]struct {
		Shape  []int
		Offset int
	}
	data []byte
}

func readWeights(path string) (*weights, error) {
	index, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, fmt.Errorf("read the index of the weights: %w", err)
	}
	w := &weights{}
	if err := json.Unmarshal(index, w); err != nil {
		return nil, fmt.Errorf("read the index of the weights %s.json: %w", path, err)
	}
	if w.data, err = os.ReadFile(path + ".f32"); err != nil {
		return nil, fmt.Errorf("read the weights: %w", err)
	}
	return w, nil
}

func (w *weights) floats(name string) ([]float32, []int, error) {
	t := w.Tensors[name]
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	if t.Shape == nil || t.Offset < 0 || t.Offset+4*n > len(w.data) {
		return nil, nil, fmt.Errorf("the weights end before tensor %q does; train again", name)
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(w.data[t.Offset+4*i:]))
	}
	return out, t.Shape, nil
}

// writeGGUF makes the model file of trained weights: matrices as Q8_0, norms as F32.
func writeGGUF(from, to string) error {
	w, err := readWeights(from)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	out := gguf.NewWriter(&file)
	setMetadata(out, w)
	names := make([]string, 0, len(w.Tensors))
	for name := range w.Tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	params := 0
	for _, name := range names {
		x, shape, err := w.floats(name)
		if err != nil {
			return err
		}
		kind := gguf.F32
		if len(shape) == 2 {
			kind = gguf.Q8_0
		}
		data, err := gguf.Encode(kind, x)
		if err != nil {
			return fmt.Errorf("encode tensor %s: %w", name, err)
		}
		dims := slices.Clone(shape)
		slices.Reverse(dims)
		out.AddTensor(name, dims, kind, data)
		params += len(x)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := os.WriteFile(to, file.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the model file: %w", err)
	}
	fmt.Printf("%s: %d parameters, %d bytes, SHA-256 %x\n", to, params, file.Len(), sha256.Sum256(file.Bytes()))
	return nil
}

func setMetadata(out *gguf.Writer, w *weights) {
	out.SetString("general.architecture", "llama")
	out.SetString("general.name", "pico")
	out.SetString("general.license", "apache-2.0")
	out.SetString("general.description", "The tiny model that ships with Rouse; see engine/pico/MODEL_CARD.md.")
	out.SetUint32("general.file_type", 7) // mostly Q8_0
	out.SetUint32("general.quantization_version", 2)
	out.SetUint32("llama.vocab_size", vocabSize)
	out.SetUint32("llama.context_length", contextLength)
	out.SetUint32("llama.embedding_length", uint32(w.Args.Dim))
	out.SetUint32("llama.block_count", uint32(w.Args.Layers))
	out.SetUint32("llama.feed_forward_length", uint32(w.Args.FFN))
	out.SetUint32("llama.attention.head_count", uint32(w.Args.Heads))
	out.SetUint32("llama.attention.head_count_kv", uint32(w.Args.KVHeads))
	out.SetUint32("llama.rope.dimension_count", uint32(w.Args.Dim/w.Args.Heads))
	out.SetFloat32("llama.rope.freq_base", 10000)
	out.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5)

	v := trainBPE().vocab()
	out.SetString("tokenizer.ggml.model", v.Model)
	out.SetString("tokenizer.ggml.pre", v.Pre)
	out.SetStrings("tokenizer.ggml.tokens", v.Tokens)
	types := make([]int32, len(v.Types))
	for i, t := range v.Types {
		types[i] = int32(t)
	}
	out.SetInt32s("tokenizer.ggml.token_type", types)
	out.SetStrings("tokenizer.ggml.merges", v.Merges)
	out.SetUint32("tokenizer.ggml.eos_token_id", imEnd)
	out.SetUint32("tokenizer.ggml.padding_token_id", endOfText)
	out.SetBool("tokenizer.ggml.add_bos_token", false)
	out.SetString("tokenizer.chat_template", chatTemplate)
}
