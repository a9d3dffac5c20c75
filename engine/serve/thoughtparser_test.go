package serve

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// divide has a parser read an answer in pieces of size bytes.
func divide(prompt, answer string, size int) (thought, text string) {
	p := (&thoughts{begin: -2, end: -3}).parser(prompt)
	for len(answer) > 0 {
		n := min(size, len(answer))
		a, b := p.write(1, answer[:n])
		thought, text, answer = thought+a, text+b, answer[n:]
	}
	a, b := p.close()
	return thought + a, text + b
}

func TestThoughtParser(t *testing.T) {
	for _, tt := range []struct{ prompt, answer, thought, text string }{
		{"", "yes", "", "yes"},
		{"", "  yes ", "", "  yes "},
		{"", "<think>a b</think>c", "a b", "c"},
		{"", " \n<think>\n a </thi </think >\n</think>\n\n c \n", "a </thi </think >", "c \n"},
		{"", "<thin", "", "<thin"},
		{"", "<think", "", "<think"},
		{"", "<think>", "", ""},
		{"", "<think>a \n", "a", ""},
		{"", "<think>a</thi", "a</thi", ""},
		{"", "<think></think>", "", ""},
		{"", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
		{"assistant\n<think>\n", "a</think>b", "a", "b"},
		{"assistant\n<think>\n", "a", "a", ""},
		{"assistant\n<think>\n\n</think>\n\n", "<think>a</think>b", "", "<think>a</think>b"},
	} {
		for size := 1; size <= len(tt.answer); size++ {
			if thought, text := divide(tt.prompt, tt.answer, size); thought != tt.thought || text != tt.text {
				t.Errorf("%q behind %q in pieces of %d: got %q and %q, want %q and %q", tt.answer, tt.prompt, size, thought, text, tt.thought, tt.text)
			}
		}
	}
}

// FuzzThoughtParser checks that the result does not depend on how an answer is cut into pieces, and that only marks
// and white space are lost.
func FuzzThoughtParser(f *testing.F) {
	f.Add("<think>", " a <think> b </think> c ", 3)
	f.Add("", "<think>\n\n</think>\n", 1)
	f.Fuzz(func(t *testing.T, prompt, answer string, size int) {
		size = 1 + max(size, -size)%16
		if size < 1 {
			size = 1
		}
		thought, text := divide(prompt, answer, max(1, len(answer)))
		if a, b := divide(prompt, answer, size); a != thought || b != text {
			t.Fatalf("in one piece %q and %q, in pieces of %d %q and %q", thought, text, size, a, b)
		}
		bare := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")
		whole, left := bare.Replace(answer), bare.Replace(thought+text)
		if lost := len(whole) - len(left); lost < 0 || lost > len(beginThought)+len(endThought) {
			t.Fatalf("of %q %q and %q are left", answer, thought, text)
		}
	})
}

// TestThoughtBudgetOfVocabulary checks that a limit is refused if the vocabulary can't write the end mark, or not all
// of it, and kept if it can.
func TestThoughtBudgetOfVocabulary(t *testing.T) {
	for letters, able := range map[string]bool{"ab": false, "</hin>": false, "</think>": true} {
		v := tokenizer.Vocab{Model: "gpt2", Tokens: strings.Split(letters, ""), Merges: []string{}, BOS: tokenizer.None, EOS: tokenizer.None, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: tokenizer.None}
		tok, err := tokenizer.New(v)
		if err != nil {
			t.Fatal(err)
		}
		of, budget := newThoughts(endThought, tok), 0
		err = (&chatRequest{ThoughtTokens: &budget}).think(of, nil)
		if !able {
			if known, ok := errors.AsType[*Error](err); !ok || known.Status != http.StatusBadRequest || known.Param != "thinking_token_budget" {
				t.Errorf("letters %q: got %v, want 400 for thinking_token_budget", letters, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("letters %q: %v", letters, err)
		}
		m, mask, text := of.first(beginThought, budget, nil).Matcher(), make([]uint64, 1), ""
		for range letters {
			m.Mask(mask)
			for id := range int32(len(letters)) {
				if mask[0] == 1<<id {
					text += string(tok.Piece(id))
					if err := m.Accept(id); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if text != endThought {
			t.Errorf("thoughts without room end with %q, want %q", text, endThought)
		}
	}
}
