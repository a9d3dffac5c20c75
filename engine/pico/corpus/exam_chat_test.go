package corpus_test

import (
	"testing"

	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

// TestTemplateOfTheFileIsChatML checks that the file's own template gives the same text as in training.
func TestTemplateOfTheFileIsChatML(t *testing.T) {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	source, ok := f.String("tokenizer.chat_template")
	if !ok {
		t.Fatal("the model file has no chat template")
	}
	template, err := chat.New(source, "", "<|im_end|>")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range corpus.Talks(5, 200) {
		var messages []chat.Message
		for _, m := range q.Messages {
			messages = append(messages, chat.Message{Role: string(m.Role), Content: m.Text})
		}
		got, err := template.Render(t.Context(), messages, chat.Options{AddGenerationPrompt: true})
		if err != nil {
			t.Fatal(err)
		}
		if want := corpus.ChatML(q.Messages); got != want {
			t.Fatalf("the template gives\n%s\nwant\n%s", got, want)
		}
	}
}
