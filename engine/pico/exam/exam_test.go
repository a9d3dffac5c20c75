package exam_test

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/pico/corpus"
	"github.com/rouse-dev/rouse/engine/pico/exam"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

func open(t *testing.T) exam.Model {
	t.Helper()
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := cpu.New(f, cpu.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runner.Close() })
	return exam.Model{Inferencer: runner, Tokens: tok}
}

// The questions are drawn, not chosen, and none of them was trained on; the model card asks more of them.
func TestHeldOutAccuracy(t *testing.T) {
	m := open(t)
	for _, skill := range corpus.Skills {
		mark, err := m.Grade(t.Context(), exam.Questions(skill, 99, 24))
		if err != nil {
			t.Fatal(err)
		}
		if want := 16; mark.Right < want {
			t.Errorf("%s: %d right of %d, want at least %d; first wrong: %s", skill, mark.Right, mark.Asked, want, mark.Wrong)
		}
	}
}

// Equal chats must get equal answers, alone or among others.
func TestAnswersDoNotDependOnTheBatch(t *testing.T) {
	m := open(t)
	var chats [][]corpus.Message
	for _, q := range exam.Talks(7, 20) {
		chats = append(chats, q.Messages)
	}
	together, err := m.Answers(t.Context(), chats)
	if err != nil {
		t.Fatal(err)
	}
	for i, chat := range chats {
		alone, err := m.Answers(t.Context(), [][]corpus.Message{chat})
		if err != nil {
			t.Fatal(err)
		}
		if together[i] != alone[0] {
			t.Errorf("%q: got %q among others and %q alone", chat[len(chat)-1].Text, together[i], alone[0])
		}
	}
}

func TestChatThatDoesNotFit(t *testing.T) {
	m := open(t)
	long := corpus.Message{Role: corpus.User, Text: strings.Repeat("echo ", 1000)}
	if _, err := m.Answers(t.Context(), [][]corpus.Message{{long}}); err == nil {
		t.Error("a chat longer than the context is answered, want an error")
	}
}
