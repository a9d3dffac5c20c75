package infertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// Types of tokens in tokenizer.ggml.token_type, as llama.cpp numbers them.
const (
	typeNormal  = 1
	typeUnknown = 2
	typeControl = 3
	typeUser    = 4
	typeUnused  = 5
	typeByte    = 6
)

const sampleText = `a model that nobody asks should cost nothing and a model that somebody asks should answer at once
the first request wakes the model and the others wait in a room until there is a place for them
when the last answer has been sent the model may sleep again and give its memory to another one
there are one two three four five six seven eight nine ten models on this machine and all of them sleep
the quick brown fox jumps over the lazy dog while the other animals are waiting in the shade of the old trees
what is the name of the place where the river meets the sea and how far is it from here to there`

type vocab struct {
	tokens []string
	types  []int32
	scores []float32
	merges []string
}

func (v *vocab) add(token string, kind int32, score float32) {
	v.tokens = append(v.tokens, token)
	v.types = append(v.types, kind)
	v.scores = append(v.scores, score)
}

func (v *vocab) addOnce(token string, score float32) {
	if !slices.Contains(v.tokens, token) {
		v.add(token, typeNormal, score)
	}
}

func (s Spec) tokenizer(g *gguf.Writer) error {
	v, f := &vocab{}, s.family()
	if s.SPM {
		if err := v.spm(g, f, s.Vocab); err != nil {
			return err
		}
	} else if err := v.bpe(g, f, s); err != nil {
		return err
	}
	for i := 0; len(v.tokens) < s.Vocab; i++ {
		v.add(fmt.Sprintf("<unused%d>", i), typeUnused, 0)
	}
	g.Set("tokenizer.ggml.tokens", v.tokens)
	g.Set("tokenizer.ggml.token_type", v.types)
	if s.SPM {
		g.Set("tokenizer.ggml.scores", v.scores)
	} else {
		g.Set("tokenizer.ggml.merges", v.merges)
	}
	if !s.NoTemplate {
		g.Set("tokenizer.chat_template", f.template)
	}
	return nil
}

func (v *vocab) bpe(g *gguf.Writer, f family, s Spec) error {
	room := s.Vocab - 256 - len(f.back)
	if room < 1 {
		return fmt.Errorf("model spec: Vocab is %d, a byte-level vocabulary needs at least %d", s.Vocab, 256+len(f.back)+1)
	}
	for b := range 256 {
		v.add(tokenizer.ByteText(string([]byte{byte(b)})), typeNormal, 0)
	}
	var words [][]string
	for _, w := range strings.Fields(sampleText) {
		words = append(words, strings.Split(tokenizer.ByteText(" "+w), ""))
	}
	for _, m := range learn(words, min(room, 500)) {
		v.merges = append(v.merges, m[0]+" "+m[1])
		v.addOnce(m[0]+m[1], 0)
	}
	for _, name := range f.back {
		v.add(name, typeControl, 0)
	}
	text, end := slices.Index(v.tokens, f.bos), slices.Index(v.tokens, f.eos)
	g.Set("tokenizer.ggml.model", "gpt2")
	g.Set("tokenizer.ggml.pre", s.Pre)
	g.Set("tokenizer.ggml.bos_token_id", text)
	g.Set("tokenizer.ggml.eos_token_id", end)
	g.Set("tokenizer.ggml.padding_token_id", text)
	g.Set("tokenizer.ggml.add_bos_token", false)
	return nil
}

func (v *vocab) spm(g *gguf.Writer, f family, size int) error {
	for _, name := range f.front {
		kind := int32(typeControl)
		if name == "<unk>" {
			kind = typeUnknown
		}
		v.add(name, kind, 0)
	}
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), typeByte, 0)
	}
	chars := []string{"▁"}
	for c := '!'; c <= '~'; c++ {
		chars = append(chars, string(c))
	}
	room := size - len(v.tokens) - len(chars) - len(f.back)
	if room < 1 {
		return fmt.Errorf("model spec: Vocab is %d, a SentencePiece vocabulary needs at least %d", size, size-room+1)
	}
	var words [][]string
	for _, w := range strings.Fields(sampleText) {
		words = append(words, strings.Split("▁"+w, ""))
	}
	score := float32(0)
	for _, m := range learn(words, min(room, 500)) {
		score--
		v.addOnce(m[0]+m[1], score)
	}
	for _, c := range chars {
		score--
		v.add(c, typeNormal, score)
	}
	for _, name := range f.back {
		v.add(name, typeControl, 0)
	}
	g.Set("tokenizer.ggml.model", "llama")
	g.Set("tokenizer.ggml.pre", "default")
	for _, id := range []struct{ key, name string }{{"bos", f.bos}, {"eos", f.eos}, {"unknown", "<unk>"}, {"eot", f.eot}} {
		if id.name != "" {
			g.Set("tokenizer.ggml."+id.key+"_token_id", slices.Index(v.tokens, id.name))
		}
	}
	g.Set("tokenizer.ggml.add_bos_token", true)
	g.Set("tokenizer.ggml.add_eos_token", false)
	g.Set("tokenizer.ggml.add_space_prefix", f.prefix)
	return nil
}

// learn finds up to n merges, the most frequent pair of neighbours first, of equals the first in the alphabet. It
// changes words.
func learn(words [][]string, n int) (merges [][2]string) {
	for len(merges) < n {
		count := map[[2]string]int{}
		for _, w := range words {
			for i := range len(w) - 1 {
				count[[2]string{w[i], w[i+1]}]++
			}
		}
		var best [2]string
		for p, c := range count {
			if b := count[best]; c > b || c == b && slices.Compare(p[:], best[:]) < 0 {
				best = p
			}
		}
		if len(count) == 0 {
			return merges
		}
		merges = append(merges, best)
		for k, w := range words {
			words[k] = merge(w, best)
		}
	}
	return merges
}

func merge(w []string, p [2]string) []string {
	out := w[:0]
	for i := 0; i < len(w); i++ {
		if i+1 < len(w) && w[i] == p[0] && w[i+1] == p[1] {
			out = append(out, p[0]+p[1])
			i++
			continue
		}
		out = append(out, w[i])
	}
	return out
}
