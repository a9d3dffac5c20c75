package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

func TestVocabularyMakesCopyingEasy(t *testing.T) {
	e, err := newEncoder("")
	if err != nil {
		t.Fatal(err)
	}
	tok := e.tokens
	for _, w := range corpus.Words {
		alone := tok.Encode(w, false)
		if len(alone) != 1 {
			t.Errorf("%q is %d tokens, want 1", w, len(alone))
		}
		if got := tok.Encode("x "+w, false); !slices.Equal(got[len(got)-len(alone):], alone) {
			t.Errorf("%q has other tokens behind a space", w)
		}
		if got := tok.Encode(strings.ToUpper(w), false); len(got) != len(alone) {
			t.Errorf("%q is %d tokens, its capitals %d", w, len(alone), len(got))
		}
	}
	if got := tok.Encode("12345", false); len(got) != 5 {
		t.Errorf("12345 is %d tokens, want one for each digit", len(got))
	}
}

func TestChatIsEncodedLikeItsText(t *testing.T) {
	e, err := newEncoder("")
	if err != nil {
		t.Fatal(err)
	}
	g := corpus.New(5, corpus.Training)
	for range 3000 {
		s := g.Sample()
		var text, answers strings.Builder
		for _, m := range append(slices.Clone(s.Messages), corpus.Message{Role: corpus.Assistant, Text: s.Answer}) {
			text.WriteString("<|im_start|>" + string(m.Role) + "\n" + m.Text + "<|im_end|>\n")
			if m.Role == corpus.Assistant {
				answers.WriteString(m.Text + "<|im_end|>")
			}
		}
		text.WriteString("<|endoftext|>")
		d := e.chat(s)
		var got, weighted []int32
		for i, id := range d.ids {
			got = append(got, int32(id))
			if d.weight[i] == answer {
				weighted = append(weighted, int32(id))
			}
		}
		if want := e.tokens.Encode(text.String(), true); !slices.Equal(got, want) {
			t.Fatalf("%q\ngot  %v\nwant %v", text.String(), got, want)
		}
		if want := e.tokens.Encode(answers.String(), true); !slices.Equal(weighted, want) {
			t.Fatalf("%q: the tokens of full weight are %v, want %v", text.String(), weighted, want)
		}
	}
}
