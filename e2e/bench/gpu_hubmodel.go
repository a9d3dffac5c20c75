package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// hubVocab is the bytes, an end, and others that stand for nothing, so that what random weights choose can be written.
const hubVocab = 512

type hubModel struct{ infertest.Spec }

// vllmWeights are the bytes of the model that vLLM serves.
const vllmWeights = 8e9

// tensor is a matrix, or a vector of ones where rows is 0.
type tensor struct {
	name       string
	rows, cols int
}

func (t tensor) values() int { return max(1, t.rows) * t.cols }

func (s hubModel) tensors() []tensor {
	list := []tensor{{"model.embed_tokens.weight", s.Vocab, s.Dim}, {"model.norm.weight", 0, s.Dim}}
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	for i := range s.Layers {
		for _, t := range []tensor{
			{"input_layernorm", 0, s.Dim}, {"post_attention_layernorm", 0, s.Dim}, {"self_attn.q_norm", 0, s.HeadDim}, {"self_attn.k_norm", 0, s.HeadDim},
			{"self_attn.q_proj", q, s.Dim}, {"self_attn.k_proj", kv, s.Dim}, {"self_attn.v_proj", kv, s.Dim}, {"self_attn.o_proj", s.Dim, q},
			{"mlp.gate_proj", s.FFN, s.Dim}, {"mlp.up_proj", s.FFN, s.Dim}, {"mlp.down_proj", s.Dim, s.FFN},
		} {
			t.name = fmt.Sprintf("model.layers.%d.%s.weight", i, t.name)
			list = append(list, t)
		}
	}
	return list
}

func (b *gpuBench) vllmFolder(ctx context.Context) (string, error) {
	s := hubModel{shapeOf(vllmWeights, hubVocab)}
	dir := filepath.Join(b.models, fmt.Sprintf("hub-qwen3-%d-layers-of-%d", s.Layers, s.Dim))
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil { // which is written last
		return dir, nil
	}
	if err := b.makeRoom(filepath.Join(dir, "config.json"), vllmWeights); err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stderr, "generating", dir)
	return dir, s.write(ctx, dir)
}

func (s hubModel) write(ctx context.Context, dir string) error {
	if err := s.writeWeights(ctx, filepath.Join(dir, "model.safetensors")); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{"tokenizer.json", byteTokenizer()},
		{"tokenizer_config.json", `{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "model_max_length": 8192,
  "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"}`},
		{"config.json", fmt.Sprintf(`{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
  "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d, "max_position_embeddings": 8192,
  "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "use_sliding_window": false, "max_window_layers": %[3]d, "eos_token_id": 256, "initializer_range": 0.02}`,
			s.Dim, s.FFN, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.Vocab)},
	} {
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s hubModel) writeWeights(ctx context.Context, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	header, at := map[string]any{}, 0
	for _, t := range s.tensors() {
		shape := []int{t.cols}
		if t.rows > 0 {
			shape = []int{t.rows, t.cols}
		}
		header[t.name] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int{at, at + 2*t.values()}}
		at += 2 * t.values()
	}
	raw, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(raw)%8 != 0 {
		raw = append(raw, ' ')
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := binary.Write(w, binary.LittleEndian, uint64(len(raw))); err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, t := range s.tensors() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := writeTensor(w, t, rng); err != nil {
			return err
		}
	}
	return w.Flush()
}

// writeTensor writes BF16: ones, or numbers of both signs from 1/64 to 1/32.
func writeTensor(w *bufio.Writer, t tensor, rng *rand.Rand) error {
	var four [8]byte
	for left := t.values(); left > 0; left -= 4 {
		v := uint64(0x3f803f803f803f80)
		if t.rows > 0 {
			v = rng.Uint64()&0x807f807f807f807f | 0x3c803c803c803c80
		}
		binary.LittleEndian.PutUint64(four[:], v)
		if _, err := w.Write(four[:2*min(4, left)]); err != nil {
			return err
		}
	}
	return nil
}

func byteTokenizer() string {
	var vocab []string
	for i := range hubVocab {
		text := tokenizer.ByteText(string([]byte{byte(i)}))
		if i >= 256 {
			text = fmt.Sprintf("%c%d", 'a'+i%26, i)
		}
		if i != 256 {
			vocab = append(vocab, fmt.Sprintf("%q: %d", text, i))
		}
	}
	return `{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "added_tokens": [{"id": 256, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
    "byte_fallback": false, "merges": [], "vocab": {` + strings.Join(vocab, ", ") + `}}}
`
}
