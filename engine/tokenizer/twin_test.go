package tokenizer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// plainBPE merges by the definition: look at all neighbours, merge the leftmost pair of the best rank, begin again. A
// remaining string that is no token is split into the halves of the first merge that makes it.
func plainBPE(v tokenizer.Vocab, word string) []int32 {
	ids, rank, halves := map[string]int32{}, map[[2]string]int{}, map[string][2]string{}
	for id, text := range v.Tokens {
		if _, dup := ids[text]; !dup && v.Types[id] == tokenizer.Normal {
			ids[text] = int32(id)
		}
	}
	made := func(s string) bool {
		_, token := ids[s]
		_, merged := halves[s]
		return token || merged
	}
	for i, m := range v.Merges {
		l, r, _ := strings.Cut(m, " ")
		if _, dup := rank[[2]string{l, r}]; dup || !made(l) || !made(r) {
			continue
		}
		if rank[[2]string{l, r}] = i; !made(l + r) {
			halves[l+r] = [2]string{l, r}
		}
	}
	var parts []string
	for i := range len(word) {
		if b := tokenizer.ByteText(word[i : i+1]); made(b) {
			parts = append(parts, b)
		}
	}
	for {
		best, at := len(v.Merges), -1
		for i := range len(parts) - 1 {
			if r, ok := rank[[2]string{parts[i], parts[i+1]}]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	var out []int32
	var emit func(s string)
	emit = func(s string) {
		if id, ok := ids[s]; ok {
			out = append(out, id)
			return
		}
		emit(halves[s][0])
		emit(halves[s][1])
	}
	for _, p := range parts {
		emit(p)
	}
	return out
}

// plainSPM merges by the definition: of all neighbours that together are a token, the pair with the highest score, the
// leftmost of equals.
func plainSPM(v tokenizer.Vocab, text string) []int32 {
	ids := map[string]int32{}
	for id, t := range v.Tokens {
		if _, dup := ids[t]; !dup && v.Types[id] == tokenizer.Normal {
			ids[t] = int32(id)
		}
	}
	parts := strings.Split(strings.ReplaceAll(" "+text, " ", "▁"), "")
	for {
		at := -1
		var best float32
		for i := range len(parts) - 1 {
			if id, ok := ids[parts[i]+parts[i+1]]; ok && (at < 0 || v.Scores[id] > best) {
				best, at = v.Scores[id], i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	var out []int32
	for _, p := range parts {
		if id, ok := ids[p]; ok {
			out = append(out, id)
			continue
		}
		for _, b := range []byte(p) {
			out = append(out, int32(b))
		}
	}
	return out
}

// nasty are the pieces of random texts and vocabularies.
var nasty = []string{"a", "a", "a", "b", "b", "c", "é", "漢", "\U0001f600", "e\u0301"}

func randomText(r *rand.Rand, parts []string, most int) string {
	var b strings.Builder
	for range 1 + r.IntN(most) {
		part := parts[r.IntN(len(parts))]
		for range 1 + r.IntN(4)*r.IntN(9) {
			b.WriteString(part)
		}
	}
	return b.String()
}

// randomBPE returns a vocabulary whose merges come in any order, twice, may have impossible halves, and make tokens or
// other strings. Some bytes have no token.
func randomBPE(r *rand.Rand) tokenizer.Vocab {
	v := byteVocab("gpt-2")
	if r.IntN(2) == 0 {
		v.Types['c'] = tokenizer.Control
	}
	known := []string{"a", "b", "c", "\xc3", "\xa9", "\xe6", "\xbc", "\xa2"}
	for range r.IntN(60) {
		left, right := known[r.IntN(len(known))], known[r.IntN(len(known))]
		if len(left+right) > 40 {
			continue
		}
		v.Merges = append(v.Merges, tokenizer.ByteText(left)+" "+tokenizer.ByteText(right))
		known = append(known, left+right)
		if r.IntN(4) > 0 {
			v.Tokens, v.Types = append(v.Tokens, tokenizer.ByteText(left+right)), append(v.Types, tokenizer.Normal)
		}
	}
	r.Shuffle(len(v.Merges)/2, func(i, j int) { v.Merges[i], v.Merges[j] = v.Merges[j], v.Merges[i] })
	return v
}

// randomSPM returns a vocabulary of byte tokens and random strings, many with the same score.
func randomSPM(r *rand.Rand) tokenizer.Vocab {
	v := tokenizer.Vocab{Model: "llama", BOS: tokenizer.None, EOS: tokenizer.None, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: tokenizer.None, AddBOS: new(bool)}
	add := func(text string, kind tokenizer.Type, score float32) {
		v.Tokens, v.Types, v.Scores = append(v.Tokens, text), append(v.Types, kind), append(v.Scores, score)
	}
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), tokenizer.Byte, 0)
	}
	known := append([]string{"▁", " ", "▁▁"}, nasty...)
	for range r.IntN(60) {
		text := known[r.IntN(len(known))] + known[r.IntN(len(known))]
		if len(text) < 60 {
			known = append(known, text)
		}
		if r.IntN(5) > 0 {
			add(text, tokenizer.Normal, float32(r.IntN(9)-4)/2)
		}
	}
	for _, one := range known[:6] {
		if r.IntN(2) == 0 {
			add(one, tokenizer.Normal, -1)
		}
	}
	return v
}

// TestMergesAreThoseOfTheDefinition compares words of all lengths, of random vocabularies, with the plain
// implementations.
func TestMergesAreThoseOfTheDefinition(t *testing.T) {
	spaces := append([]string{" ", " ", "▁"}, nasty...)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(7, seed))
		bpe, spm := randomBPE(r), randomSPM(r)
		for name, c := range map[string]struct {
			v     tokenizer.Vocab
			plain func(v tokenizer.Vocab, text string) []int32
			parts []string
		}{"BPE": {bpe, plainBPE, nasty[:8]}, "SPM": {spm, plainSPM, spaces}} {
			tok := build(t, c.v)
			for _, most := range []int{3, 8, 20, 60} {
				text := randomText(r, c.parts, most)
				if got, want := tok.Encode(text, false), c.plain(c.v, text); !slices.Equal(got, want) {
					t.Fatalf("%s, seed %d: %q:\n got %q\nwant %q", name, seed, text, texts(tok, got), texts(tok, want))
				}
			}
		}
	}
}
