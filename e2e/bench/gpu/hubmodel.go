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

	"golang.org/x/sys/unix"
)

// hubShape is a dense qwen3 model as the Hugging Face hub has them.
type hubShape struct {
	dim, layers, heads, kv, head, ffn, vocab int
}

// hubVocab is how many tokens it has: the bytes, one that ends, and others that stand for nothing, so that whatever random
// weights choose can be written.
const hubVocab = 512

// shapeOf is one whose weights, in BF16, take about so many bytes.
func shapeOf(weights float64) hubShape {
	s := hubShape{dim: 4096, heads: 32, kv: 8, head: 128, ffn: 12288, vocab: hubVocab}
	if weights < 1e9 {
		s = hubShape{dim: 256, heads: 8, kv: 2, head: 32, ffn: 768, vocab: hubVocab}
	}
	each := s.dim*(2*s.heads*s.head+2*s.kv*s.head) + 3*s.ffn*s.dim
	s.layers = max(1, int((weights/2-float64(s.vocab*s.dim))/float64(each)))
	return s
}

// tensor is a matrix, or a vector of ones where rows is 0.
type tensor struct {
	name       string
	rows, cols int
}

func (t tensor) values() int { return max(1, t.rows) * t.cols }

func (s hubShape) tensors() []tensor {
	list := []tensor{{"model.embed_tokens.weight", s.vocab, s.dim}, {"model.norm.weight", 0, s.dim}}
	q, kv := s.heads*s.head, s.kv*s.head
	for i := range s.layers {
		for _, t := range []tensor{
			{"input_layernorm", 0, s.dim}, {"post_attention_layernorm", 0, s.dim}, {"self_attn.q_norm", 0, s.head}, {"self_attn.k_norm", 0, s.head},
			{"self_attn.q_proj", q, s.dim}, {"self_attn.k_proj", kv, s.dim}, {"self_attn.v_proj", kv, s.dim}, {"self_attn.o_proj", s.dim, q},
			{"mlp.gate_proj", s.ffn, s.dim}, {"mlp.up_proj", s.ffn, s.dim}, {"mlp.down_proj", s.dim, s.ffn},
		} {
			t.name = fmt.Sprintf("model.layers.%d.%s.weight", i, t.name)
			list = append(list, t)
		}
	}
	return list
}

// vllmFolder generates the folder of a model of random weights, unless it is there.
func (b *bench) vllmFolder(ctx context.Context) (string, error) {
	s := shapeOf(b.vllmWeights)
	dir := filepath.Join(b.models, fmt.Sprintf("hub-qwen3-%d-layers-of-%d", s.layers, s.dim))
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil { // which is written last
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && float64(fs.Bavail)*float64(fs.Bsize) < 1.2*b.vllmWeights {
		return "", lacks("%s has no room for a model of %s", b.models, gigabytes(b.vllmWeights))
	}
	fmt.Fprintln(os.Stderr, "generating", dir)
	return dir, s.write(ctx, dir)
}

func (s hubShape) write(ctx context.Context, dir string) error {
	if err := s.writeWeights(ctx, filepath.Join(dir, "model.safetensors")); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		value any
	}{{"tokenizer.json", byteTokenizer()}, {"tokenizer_config.json", map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": endToken, "model_max_length": 8192,
		"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
	}}, {"config.json", map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "hidden_size": s.dim, "intermediate_size": s.ffn, "num_hidden_layers": s.layers,
		"num_attention_heads": s.heads, "num_key_value_heads": s.kv, "head_dim": s.head, "vocab_size": s.vocab, "max_position_embeddings": 8192,
		"rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "tie_word_embeddings": true,
		"torch_dtype": "bfloat16", "use_sliding_window": false, "max_window_layers": s.layers, "eos_token_id": 256, "initializer_range": 0.02,
	}}} {
		raw, err := json.MarshalIndent(f.value, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeWeights writes a file of safetensors: the length of a header, which says where each tensor is, and the tensors.
func (s hubShape) writeWeights(ctx context.Context, path string) (err error) {
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

// writeTensor writes values in BF16: ones, or numbers of both signs from 1/64 to 1/32.
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

// endToken is the one with the number 256.
const endToken = "<|end|>"

// byteTokenizer is a tokenizer.json in which each byte is a token.
func byteTokenizer() map[string]any {
	vocab := map[string]int{}
	next := rune(256)
	for c := range 256 { // the characters that stand for bytes in byte-level BPE
		r := rune(c)
		if c <= ' ' || c >= 0x7f && c <= 0xa0 || c == 0xad {
			r, next = next, next+1
		}
		vocab[string(r)] = c
	}
	for i := 257; i < hubVocab; i++ {
		vocab[fmt.Sprintf("%c%d", 'a'+i%26, i)] = i
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "pre_tokenizer": level, "post_processor": nil, "decoder": level,
		"added_tokens": []any{map[string]any{"id": 256, "content": endToken, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}},
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": false,
			"byte_fallback": false, "vocab": vocab, "merges": []string{}},
	}
}
