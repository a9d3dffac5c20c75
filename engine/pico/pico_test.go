package pico_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/pico"
)

func TestModelFileIsTheOneOfTheCard(t *testing.T) {
	sum := sha256.Sum256(pico.GGUF())
	if got := hex.EncodeToString(sum[:]); got != pico.SHA256 {
		t.Errorf("the embedded file has SHA-256 %s, the constant says %s: run `go run ./engine/pico/train gguf`", got, pico.SHA256)
	}
	card, err := os.ReadFile("MODEL_CARD.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(card), pico.SHA256) {
		t.Errorf("MODEL_CARD.md does not name the file %s: measure it again, as the card says", pico.SHA256)
	}
	if got, limit := len(pico.GGUF()), 4<<20; got > limit {
		t.Errorf("the model file has %d bytes, want at most %d", got, limit)
	}
}

func TestModelFileIsALlama(t *testing.T) {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Architecture(); got != "llama" {
		t.Errorf("architecture is %q, want llama", got)
	}
	params := 0
	for _, x := range f.Tensors() {
		params += x.Len()
	}
	if params < 1_000_000 || params > 3_000_000 {
		t.Errorf("the model has %d parameters, want 1 to 3 million", params)
	}
	for key, want := range map[string]uint64{
		"llama.context_length": 512, "llama.embedding_length": 192, "llama.block_count": 5, "llama.vocab_size": 1024,
	} {
		if got, ok := f.Uint(key); !ok || got != want {
			t.Errorf("%s is %d, want %d", key, got, want)
		}
	}
	if template, _ := f.String("tokenizer.chat_template"); !strings.Contains(template, "<|im_start|>") {
		t.Errorf("the chat template is %q, want ChatML", template)
	}
}
