// Command tinygguf writes a model that answers " w0 w1 w2 …" to any prompt, up to the number of words, and ends. With
// -words 0 it repeats w0 to w63 until it is stopped. With -think n its first word is <think>, and after n more comes
// </think>. With -layout it writes one of a public model's layout with random weights instead.
//
// It is a llama whose attention and feed-forward are zero, so a token's embedding reaches the output as it is. The
// embedding is one-hot and says which word the token is (0: none); the output matrix has a large value where one word
// follows another. More layers only take time.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tinygguf:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("tinygguf", flag.ContinueOnError)
	words := flags.Int("words", 8, "words of an answer, 1 to 1000; 0: it never ends")
	think := flags.Int("think", 0, "words that it thinks before it answers, at most -words less 2")
	layers := flags.Int("layers", 1, "layers, 1 to 1000: each makes a token take longer")
	context := flags.Int("context", 4096, "length of the context in tokens")
	layout := flags.String("layout", "", "layout of a public model, with random weights: qwen3 or llama3 (default: a model with known answers)")
	out := flags.String("o", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	spec, random := layouts[*layout]
	if *layout != "" && !random {
		return errors.New("want -layout qwen3 or llama3")
	}
	if *words < 0 || *words > 1000 || *layers < 1 || *layers > 1000 || *context < 8 || *think < 0 || *think > max(0, *words-2) || *out == "" || flags.NArg() > 0 {
		return errors.New("want -o FILE, 0 to 1000 -words, 1 to 1000 -layers and a -context of 8 or more")
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	if random {
		err = infertest.Write(w, spec)
	} else {
		err = write(w, *words, *think, *layers, *context)
	}
	return errors.Join(err, w.Flush(), f.Close())
}

const (
	normal  = 1
	unknown = 2
	control = 3
	byteful = 6
)

const end = 2

// cycle is how many words a model that never ends has.
const cycle = 64

type vocabulary struct {
	tokens []string
	types  []int32
	scores []float32
}

func (v *vocabulary) add(token string, kind int32) {
	v.tokens = append(v.tokens, token)
	v.types = append(v.types, kind)
	v.scores = append(v.scores, -float32(len(v.tokens)))
}

func write(dst io.Writer, words, think, layers, context int) error {
	var v vocabulary
	v.add("<unk>", unknown)
	v.add("<s>", control)
	v.add("</s>", control)
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), byteful)
	}
	v.add("▁", normal)
	for c := '!'; c <= '~'; c++ {
		v.add(string(c), normal)
	}
	first := len(v.tokens)
	n := words
	if n == 0 {
		n = cycle
	}
	for i := range n {
		word := fmt.Sprintf("▁w%d", i)
		switch {
		case think > 0 && i == 0:
			word = "▁<think>"
		case think > 0 && i == think+1:
			word = "▁</think>"
		}
		v.add(word, normal)
	}
	const heads, headDim, ffn = 2, 32, 64
	dim := max((n+1+63)/64*64, heads*headDim)

	g := gguf.NewWriter(dst)
	g.Set("general.architecture", "llama")
	g.Set("general.name", "tiny")
	for _, n := range []struct {
		key   string
		value int
	}{
		{"context_length", context}, {"embedding_length", dim}, {"block_count", layers}, {"feed_forward_length", ffn}, {"attention.head_count", heads},
		{"attention.head_count_kv", heads}, {"attention.key_length", headDim}, {"attention.value_length", headDim}, {"rope.dimension_count", headDim},
		{"vocab_size", len(v.tokens)},
	} {
		g.Set("llama."+n.key, n.value)
	}
	g.Set("llama.attention.layer_norm_rms_epsilon", 1e-5)
	v.metadata(g, think > 0)

	// Which word a token is: 0 none, 1 w0, …
	matrix(g, "token_embd", dim, len(v.tokens), func(token, class int) bool { return class == max(0, token-first+1) })
	for l := range layers {
		for _, m := range []struct {
			part       string
			cols, rows int // no rows: a norm
		}{
			{"attn_norm", dim, 0}, {"attn_q", dim, heads * headDim}, {"attn_k", dim, heads * headDim}, {"attn_v", dim, heads * headDim}, {"attn_output", heads * headDim, dim},
			{"ffn_norm", dim, 0}, {"ffn_gate", dim, ffn}, {"ffn_up", dim, ffn}, {"ffn_down", ffn, dim},
		} {
			matrix(g, fmt.Sprintf("blk.%d.%s", l, m.part), m.cols, m.rows, func(_, _ int) bool { return false })
		}
	}
	matrix(g, "output_norm", dim, 0, nil)
	matrix(g, "output", dim, len(v.tokens), func(token, class int) bool {
		switch {
		case class > n:
			return false
		case class == n && words > 0:
			return token == end
		}
		return token == first+class%n
	})
	return g.Flush()
}

func (v *vocabulary) metadata(g *gguf.Writer, thinks bool) {
	g.Set("tokenizer.ggml.model", "llama")
	g.Set("tokenizer.ggml.tokens", v.tokens)
	g.Set("tokenizer.ggml.scores", v.scores)
	g.Set("tokenizer.ggml.token_type", v.types)
	g.Set("tokenizer.ggml.unknown_token_id", 0)
	g.Set("tokenizer.ggml.bos_token_id", 1)
	g.Set("tokenizer.ggml.eos_token_id", end)
	marks := ""
	if thinks { // servers know it by its template
		marks = "{# thoughts are between <think> and </think> #}"
	}
	g.Set("tokenizer.chat_template", marks+"{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"+
		"{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}")
}

// large makes one token certain at any temperature that clients use.
const large = 32

// matrix adds a matrix that is large where set says so, and zero elsewhere; without rows, the weights of a norm.
func matrix(g *gguf.Writer, name string, cols, rows int, set func(row, col int) bool) {
	dims := []int{cols, rows}
	if rows == 0 {
		dims = dims[:1]
	}
	g.AddTensorFunc(name+".weight", dims, gguf.F32, func(w io.Writer) error {
		values := make([]float32, cols)
		for r := range max(1, rows) {
			for c := range values {
				switch {
				case rows == 0:
					values[c] = 1
				case set(r, c):
					values[c] = large
				default:
					values[c] = 0
				}
			}
			raw, err := gguf.Encode(gguf.F32, values)
			if err != nil {
				return err
			}
			if _, err := w.Write(raw); err != nil {
				return err
			}
		}
		return nil
	})
}
