package chat_test

import (
	"testing"

	"github.com/rouse-dev/rouse/engine/chat"
)

func BenchmarkRender(b *testing.B) {
	messages := []chat.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi!"}, {Role: "assistant", Content: "Hello."}, {Role: "user", Content: "How are you?"}}
	run := func(name string, t *chat.Template) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Render(b.Context(), messages, chat.Options{AddGenerationPrompt: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"chatml", "llama3", "qwen25", "mistral"} {
		run(name, openArchive(b, "testdata/"+name+".txtar").template)
	}
	b.Run("parse-qwen25", func(b *testing.B) {
		for b.Loop() {
			openArchive(b, "testdata/qwen25.txtar")
		}
	})
}
