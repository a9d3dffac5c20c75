package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// The vocabulary: 256 bytes, merges, three control tokens.
const (
	vocabSize   = 1024
	endOfText   = vocabSize - 3
	imStart     = vocabSize - 2
	imEnd       = vocabSize - 1
	punctMerges = 13
)

// bpe is a byte-level byte-pair encoding. Tokens are raw bytes; GGUF's printable form is made when the file is written.
//
// Three rules make copying easy to learn. A space never merges with a word, so a word has the same tokens everywhere.
// Every merge of small letters is followed by the same merge of capitals, so upper-casing maps token to token. Digits
// never merge.
type bpe struct {
	tokens []string    // by id
	merges [][2]string // by rank
}

func trainBPE() *bpe {
	b := &bpe{}
	for c := range 256 {
		b.tokens = append(b.tokens, string([]byte{byte(c)}))
	}
	letters, puncts := pieces()
	for _, m := range mergePairs(puncts, punctMerges) {
		b.add(m)
	}
	for _, m := range mergePairs(letters, (endOfText-len(b.tokens))/2) {
		b.add(m)
		b.add([2]string{strings.ToUpper(m[0]), strings.ToUpper(m[1])})
	}
	for len(b.tokens) < endOfText {
		b.tokens = append(b.tokens, fmt.Sprintf("<|unused%d|>", len(b.tokens)))
	}
	b.tokens = append(b.tokens, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
	if len(b.tokens) != vocabSize {
		panic("train: the vocabulary has the wrong size")
	}
	return b
}

func (b *bpe) add(m [2]string) {
	b.merges = append(b.merges, m)
	b.tokens = append(b.tokens, m[0]+m[1])
}

// pieces counts the lower-case words and the runs of punctuation of the corpus. A word counts once however often it
// occurs, and three times if it is in the copying list, so that rare words of the list become tokens too.
func pieces() (letters, puncts map[string]int) {
	seen := map[string]int{}
	letters, puncts = map[string]int{}, map[string]int{}
	g := corpus.New(100, corpus.Training)
	for range 60000 {
		s := g.Sample()
		for _, m := range append(s.Messages, corpus.Message{Text: string(corpus.Assistant) + " " + s.Answer}) {
			for _, w := range split(string(m.Role) + " " + m.Text) {
				seen[strings.ToLower(w)]++
			}
		}
	}
	for w, n := range seen {
		switch c := w[0]; {
		case n < 40:
		case c >= 'a' && c <= 'z':
			letters[w] = 1
		case c > ' ' && (c < '0' || c > '9'):
			puncts[w] = n
		}
	}
	for _, w := range corpus.Words {
		letters[w] = 3
	}
	return letters, puncts
}

// mergePairs finds the best merges greedily, at most n; ties go to the pair that is first in the alphabet.
func mergePairs(count map[string]int, n int) [][2]string {
	type word struct {
		parts []string
		n     int
	}
	var words []word
	for w, n := range count {
		words = append(words, word{strings.Split(w, ""), n})
	}
	var out [][2]string
	for range n {
		pairs := map[[2]string]int{}
		for _, w := range words {
			for i := 1; i < len(w.parts); i++ {
				pairs[[2]string{w.parts[i-1], w.parts[i]}] += w.n
			}
		}
		var best [2]string
		for p, n := range pairs {
			if m := pairs[best]; n > m || n == m && slices.Compare(p[:], best[:]) < 0 {
				best = p
			}
		}
		if pairs[best] == 0 {
			break
		}
		out = append(out, best)
		for i := range words {
			words[i].parts = join(words[i].parts, best)
		}
	}
	return out
}

// join merges every occurrence of the pair, from the left.
func join(parts []string, pair [2]string) []string {
	var out []string
	for i := 0; i < len(parts); i++ {
		if i+1 < len(parts) && parts[i] == pair[0] && parts[i+1] == pair[1] {
			out = append(out, pair[0]+pair[1])
			i++
		} else {
			out = append(out, parts[i])
		}
	}
	return out
}

// split cuts text where no merge can cross: into runs of letters, runs of punctuation, and single other characters.
func split(text string) []string {
	class := func(c byte) int {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			return 1
		case c <= ' ' || c >= '0' && c <= '9':
			return 0
		}
		return 2
	}
	var out []string
	for i := 0; i < len(text); {
		j := i + 1
		for j < len(text) && class(text[j]) != 0 && class(text[j]) == class(text[i]) {
			j++
		}
		out = append(out, text[i:j])
		i = j
	}
	return out
}

// vocab returns the vocabulary in the form that model files and package tokenizer use.
func (b *bpe) vocab() tokenizer.Vocab {
	no := false
	v := tokenizer.Vocab{Model: "gpt2", Pre: "gpt-2", BOS: tokenizer.None, EOS: imEnd, EOT: tokenizer.None,
		EOM: tokenizer.None, Unknown: tokenizer.None, AddBOS: &no}
	for id, t := range b.tokens {
		kind, text := tokenizer.Normal, t
		switch {
		case id >= endOfText:
			kind = tokenizer.Control
		case strings.HasPrefix(t, "<|unused"):
			kind = tokenizer.Unused
		default:
			text = tokenizer.ByteText(t)
		}
		v.Tokens, v.Types = append(v.Tokens, text), append(v.Types, kind)
	}
	for _, m := range b.merges {
		v.Merges = append(v.Merges, tokenizer.ByteText(m[0])+" "+tokenizer.ByteText(m[1]))
	}
	return v
}
