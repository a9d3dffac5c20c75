package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// trainBPE makes a byte-level vocabulary whose merges ignore words: they cross spaces, digits and line
// ends, so that a word cut in the wrong place gets other tokens.
func trainBPE(corpus []string, merges int) tokenizer.Vocab {
	v := tokenizer.Vocab{Model: "gpt2", BOS: tokenizer.None, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: tokenizer.None}
	var words [][]string
	for b := range 256 {
		v.Tokens = append(v.Tokens, tokenizer.ByteText(string([]byte{byte(b)})))
	}
	for _, text := range corpus {
		var w []string
		for i := range len(text) {
			w = append(w, tokenizer.ByteText(text[i:i+1]))
		}
		words = append(words, w)
	}
	for _, p := range mergePairs(words, merges) {
		v.Merges = append(v.Merges, p[0]+" "+p[1])
		v.Tokens = append(v.Tokens, p[0]+p[1])
	}
	v.Types = types(len(v.Tokens))
	v.EOS = int32(len(v.Tokens))
	addSpecial(&v, "<|endoftext|>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]")
	v.Tokens, v.Types = append(v.Tokens, "<tool>"), append(v.Types, tokenizer.UserDefined)
	return v
}

// trainSPM makes an SPM vocabulary: byte tokens, the characters of the corpus, and merges with falling scores.
func trainSPM(corpus []string, merges int) tokenizer.Vocab {
	v := tokenizer.Vocab{Model: "llama", Unknown: 0, BOS: 1, EOS: 2, EOT: tokenizer.None, EOM: tokenizer.None}
	v.Tokens = []string{"<unk>", "<s>", "</s>"}
	v.Types = []tokenizer.Type{tokenizer.Unknown, tokenizer.Control, tokenizer.Control}
	v.Scores = []float32{0, 0, 0}
	for b := range 256 {
		v.Tokens, v.Types, v.Scores = append(v.Tokens, fmt.Sprintf("<0x%02X>", b)), append(v.Types, tokenizer.Byte), append(v.Scores, 0)
	}
	var words [][]string
	seen := map[string]bool{}
	var chars []string
	for _, text := range corpus {
		var w []string
		for _, r := range strings.ReplaceAll(" "+text, " ", "▁") {
			c := string(r)
			if r == '\uFFFD' || r < ' ' || r == '世' { // some characters have no token of their own
				c = ""
			}
			if c != "" && !seen[c] {
				seen[c] = true
				chars = append(chars, c)
			}
			w = append(w, c)
		}
		words = append(words, w)
	}
	add := func(text string, score float32) {
		v.Tokens, v.Types, v.Scores = append(v.Tokens, text), append(v.Types, tokenizer.Normal), append(v.Scores, score)
	}
	for i, p := range mergePairs(words, merges) {
		if !seen[p[0]+p[1]] {
			seen[p[0]+p[1]] = true
			add(p[0]+p[1], -float32(i/2)) // pairs of equal scores: the leftmost wins
		}
	}
	for i, c := range chars {
		add(c, -float32(merges+i))
	}
	addSpecial(&v, "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]")
	v.Scores = append(v.Scores, 0, 0, 0, 0, 0)
	v.Tokens, v.Types = append(v.Tokens, "<tool>"), append(v.Types, tokenizer.UserDefined)
	return v
}

// gemmaVocab returns v in Gemma's form: other special tokens in front, runs of spaces and line ends as user-defined
// tokens, and no space in front of a text.
func gemmaVocab(v tokenizer.Vocab) tokenizer.Vocab {
	front := []string{"<pad>", "<eos>", "<bos>"}
	out := tokenizer.Vocab{Model: "llama", BOS: 2, EOS: 1, Unknown: 3, EOT: tokenizer.None, EOM: tokenizer.None, AddSpacePrefix: new(bool)}
	addSpecial(&out, front...)
	out.Tokens, out.Types = append(out.Tokens, v.Tokens[0]), append(out.Types, tokenizer.Unknown)
	out.Tokens, out.Types = append(out.Tokens, v.Tokens[3:]...), append(out.Types, v.Types[3:]...)
	for _, text := range []string{"  ", "   ", "    ", "\n\n", "\n\n\n", "\t\t", "<mask>"} {
		out.Tokens, out.Types = append(out.Tokens, text), append(out.Types, tokenizer.UserDefined)
	}
	addSpecial(&out, "<start_of_turn>", "<end_of_turn>")
	out.Scores = append(make([]float32, 4), v.Scores[3:]...)
	out.Scores = append(out.Scores, make([]float32, len(out.Tokens)-len(out.Scores))...)
	return out
}

// phi3Vocab returns v in Phi 3's form.
func phi3Vocab(v tokenizer.Vocab) tokenizer.Vocab {
	v.Tokens, v.Types = slices.Clone(v.Tokens), slices.Clone(v.Types)
	addSpecial(&v, "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
	v.Scores = append(slices.Clone(v.Scores), 0, 0, 0, 0, 0)
	v.StripAfter = true
	return v
}

func types(n int) []tokenizer.Type {
	t := make([]tokenizer.Type, n)
	for i := range t {
		t[i] = tokenizer.Normal
	}
	return t
}

func addSpecial(v *tokenizer.Vocab, names ...string) {
	for _, n := range names {
		v.Tokens, v.Types = append(v.Tokens, n), append(v.Types, tokenizer.Control)
	}
}

// mergePairs counts pairs and merges the most frequent one, again and again. No pair contains an empty string.
func mergePairs(words [][]string, n int) [][2]string {
	var out [][2]string
	made := map[string]bool{}
	for len(out) < n {
		count := map[[2]string]int{}
		for _, w := range words {
			for i := range len(w) - 1 {
				if p := [2]string{w[i], w[i+1]}; p[0] != "" && p[1] != "" && !made[p[0]+p[1]] {
					count[p]++
				}
			}
		}
		var top [2]string
		for p, c := range count {
			if c > count[top] || c == count[top] && p[0]+"\x00"+p[1] < top[0]+"\x00"+top[1] {
				top = p
			}
		}
		if count[top] == 0 {
			break
		}
		out = append(out, top)
		made[top[0]+top[1]] = true
		for wi, w := range words {
			kept := w[:0]
			for i := 0; i < len(w); i++ {
				if i+1 < len(w) && w[i] == top[0] && w[i+1] == top[1] {
					kept = append(kept, w[i]+w[i+1])
					i++
					continue
				}
				kept = append(kept, w[i])
			}
			words[wi] = kept
		}
	}
	return out
}

// writeVocab writes a GGUF file without weights that llama.cpp opens as a vocabulary.
func writeVocab(path string, v tokenizer.Vocab) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := gguf.NewWriter(f)
	w.SetString("general.architecture", "llama")
	if v.StripAfter {
		w.SetString("general.name", "phi-3") // llama.cpp recognises the family by this name
	}
	w.SetString("tokenizer.ggml.model", v.Model)
	if v.Pre != "" {
		w.SetString("tokenizer.ggml.pre", v.Pre)
	}
	w.SetStrings("tokenizer.ggml.tokens", v.Tokens)
	kinds := make([]int32, len(v.Types))
	for i, t := range v.Types {
		kinds[i] = int32(t)
	}
	w.SetInt32s("tokenizer.ggml.token_type", kinds)
	if v.Scores != nil {
		w.SetFloats("tokenizer.ggml.scores", v.Scores)
	}
	if v.Merges != nil {
		w.SetStrings("tokenizer.ggml.merges", v.Merges)
	}
	for key, id := range map[string]int32{"bos": v.BOS, "eos": v.EOS, "unknown": v.Unknown} {
		if id != tokenizer.None {
			w.SetUint32("tokenizer.ggml."+key+"_token_id", uint32(id))
		}
	}
	if v.AddBOS != nil {
		w.SetBool("tokenizer.ggml.add_bos_token", *v.AddBOS)
	}
	if v.AddSpacePrefix != nil {
		w.SetBool("tokenizer.ggml.add_space_prefix", *v.AddSpacePrefix)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
