package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// slowBPE is the definition of byte-level BPE: look at all neighbours, merge the leftmost pair of the best rank, begin
// again. It supports only vocabularies in which every merge makes a token.
type slowBPE struct {
	ids  map[string]int32
	rank map[[2]string]int
}

func newSlowBPE(v tokenizer.Vocab) slowBPE {
	s := slowBPE{map[string]int32{}, map[[2]string]int{}}
	for id, text := range v.Tokens {
		s.ids[text] = int32(id)
	}
	for i, m := range v.Merges {
		l, r, _ := strings.Cut(m, " ")
		s.rank[[2]string{l, r}] = i
	}
	return s
}

func (s slowBPE) word(word string) []int32 {
	var parts []string
	for i := range len(word) {
		parts = append(parts, tokenizer.ByteText(word[i:i+1]))
	}
	for {
		best, at := len(s.rank), -1
		for i := range len(parts) - 1 {
			if r, ok := s.rank[[2]string{parts[i], parts[i+1]}]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	var ids []int32
	for _, p := range parts {
		ids = append(ids, s.ids[p])
	}
	return ids
}

// FuzzMerge compares the merging of one word with the slow twin.
func FuzzMerge(f *testing.F) {
	var file struct{ Vocab tokenizer.Vocab }
	readJSON(f, "vocab-bpe.json", &file)
	file.Vocab.Pre = "gpt-2"
	tok, slow := build(f, file.Vocab), newSlowBPE(file.Vocab)
	for _, s := range []string{"abab", "aSTe'sRE", "世のア한", "éßéß", strings.Repeat("ab", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// one word for the pre-tokenizer: no white space, letters only
		text = strings.Map(func(r rune) rune {
			if r < 'a' || r == utf8.RuneError || !isLetter(r) {
				return -1
			}
			return r
		}, text)
		if text == "" {
			return
		}
		if got, want := tok.Encode(text, false), slow.word(text); !slices.Equal(got, want) {
			t.Errorf("%q:\n got %q\nwant %q", text, texts(tok, got), texts(tok, want))
		}
	})
}

// FuzzEncodeDecode checks that nothing panics, every id is in the vocabulary, valid UTF-8 survives, untrusted text
// makes no control tokens, and a stream gives the same text as Decode.
func FuzzEncodeDecode(f *testing.F) {
	var toks []*tokenizer.Tokenizer
	names := []string{"gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm", "none", "tekken", "gpt-4o", "spm", "gemma", "phi3", "gemma4"}
	for _, name := range names {
		var g golden
		readJSON(f, "golden-"+name+".json", &g)
		toks = append(toks, g.open(f))
		for _, c := range g.Cases {
			f.Add(c.Text)
		}
	}
	var vocab struct{ Vocab tokenizer.Vocab }
	readJSON(f, "vocab-bpe.json", &vocab)
	for _, pre := range []string{"deepseek-v3", "deepseek-llm", "falcon", "command-r"} {
		vocab.Vocab.Pre = pre
		toks = append(toks, build(f, vocab.Vocab))
	}
	f.Add("\xff\xfe<|im_start|>\xc3")
	f.Fuzz(func(t *testing.T, text string) {
		for i, tok := range toks {
			for _, special := range []bool{false, true} {
				ids := tok.Encode(text, special)
				for _, id := range ids {
					kind := tok.Type(id)
					if kind == 0 || !special && (kind == tokenizer.Control || kind == tokenizer.Unknown) {
						t.Fatalf("tokenizer %d, special %v: %q gives id %d %q of type %d", i, special, text, id, tok.Token(id), kind)
					}
				}
				checkStream(t, tok, ids)
				checkGuard(t, tok, text)
				byteLevel := i < slices.Index(names, "spm")
				if back := tok.Decode(ids); !special && utf8.ValidString(text) && byteLevel && back != text {
					t.Fatalf("tokenizer %d: %q comes back as %q", i, text, back)
				}
			}
		}
	})
}

// checkGuard checks that a guarded text gives no control token.
func checkGuard(t *testing.T, tok *tokenizer.Tokenizer, text string) {
	t.Helper()
	for _, id := range tok.Encode(tok.Guard(text), true) {
		if kind := tok.Type(id); kind == tokenizer.Control || kind == tokenizer.Unknown {
			t.Fatalf("the guarded text %q gives %q", text, tok.Token(id))
		}
	}
}

// checkStream compares a StreamDecoder with the joined pieces.
func checkStream(t *testing.T, tok *tokenizer.Tokenizer, ids []int32) {
	t.Helper()
	var all []byte
	var streamed strings.Builder
	d := tok.Stream()
	for _, id := range ids {
		all = append(all, tok.Piece(id)...)
		s := d.Write(id)
		if !utf8.ValidString(s) {
			t.Fatalf("the stream gives a broken character: %q", s)
		}
		streamed.WriteString(s)
	}
	streamed.WriteString(d.Flush())
	if utf8.Valid(all) && streamed.String() != string(all) {
		t.Fatalf("the stream gives %q, want %q", streamed.String(), all)
	}
}

func isLetter(r rune) bool {
	return strings.ContainsRune("abcdefghijklmnopqrstuvwxyzéß世のア한กعДǅªſ", r)
}

// TestLongWord checks that one word of 256 KiB takes time n log n, not n².
func TestLongWord(t *testing.T) {
	for _, name := range []string{"golden-gpt-2.json", "golden-spm.json"} {
		var g golden
		readJSON(t, name, &g)
		tok := g.open(t)
		begin := time.Now()
		text := strings.Repeat("ab", 1<<17)
		ids := tok.Encode(text, false)
		if got := tok.Decode(ids); got != text {
			t.Errorf("%s: the word does not come back", name)
		}
		if d := time.Since(begin); d > 20*time.Second { // half a second or less; n² would take many minutes
			t.Errorf("%s: a word of 256 KiB took %v", name, d)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over 13 lazy dogs; it's 世界! func main() {\n\treturn x\n}\n", 50)
	for _, name := range []string{"gpt-2", "llama-bpe", "qwen2", "spm"} {
		b.Run(name, func(b *testing.B) {
			var g golden
			readJSON(b, "golden-"+name+".json", &g)
			tok := g.open(b)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Encode(text, false)
			}
		})
	}
}
