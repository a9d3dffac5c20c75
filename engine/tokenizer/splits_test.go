package tokenizer_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// TestSplits compares the words with those of Hugging Face's tokenizers; engine/golden/splits.mjs writes the file.
func TestSplits(t *testing.T) {
	var file struct {
		Texts []string
		Words map[string][][]int // lengths in bytes, by pre-tokenizer
	}
	readJSON(t, "splits.json", &file)
	if len(file.Texts) < 700 || len(file.Words) < 6 {
		t.Fatalf("%d texts for %d pre-tokenizers", len(file.Texts), len(file.Words))
	}
	for pre, words := range file.Words {
		for i, text := range file.Texts {
			if tokenizer.PreTokenizers()[pre] {
				text = norm.NFC.String(text)
			}
			got, err := tokenizer.Split(pre, text)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			rest := text
			for _, n := range words[i] {
				if n > len(rest) {
					t.Fatalf("%s: %q is shorter than its words %v", pre, text, words[i])
				}
				want, rest = append(want, rest[:n]), rest[n:]
			}
			if diff := cmp.Diff(want, got); diff != "" || rest != "" {
				t.Errorf("%s: %q, left %q (-want +got):\n%s", pre, text, rest, diff)
			}
		}
	}
}

// FuzzSplits checks that no pre-tokenizer loses a byte, makes an empty word or cuts a character.
func FuzzSplits(f *testing.F) {
	for _, text := range []string{"", "a\r\n b", "\u3000\u00a012\u0301x", "!a ?\n", "'S's 世界ア1234\t \t"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // Encode repairs it before
		}
		for pre := range tokenizer.PreTokenizers() {
			words, err := tokenizer.Split(pre, text)
			if err != nil || strings.Join(words, "") != text {
				t.Errorf("%s: %q becomes %q, %v", pre, text, words, err)
			}
			for _, w := range words {
				if w == "" || !utf8.ValidString(w) {
					t.Errorf("%s: %q has the word %q", pre, text, w)
				}
			}
		}
	})
}
