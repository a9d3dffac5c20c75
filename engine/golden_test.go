package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// goldenPico has llama.cpp's results for the shipped model, and goldenOllama a real Ollama's answers over its
// API. engine/golden/llama.py makes both files.
type goldenPico struct {
	SHA256 string
	Runs   []struct {
		Prompt, Text string
		IDs, Greedy  []int32
		Ties         []struct {
			Step                    int
			First, Second           int32
			FirstLogit, SecondLogit float32
		}
	}
}

type goldenOllama struct {
	SHA256  string
	Answers []struct{ User, Text string }
}

func readGolden(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestGolden runs the shipped model from template to text, with many requests at once, and compares with both
// references. If the best two tokens of a step are close together, rounding may choose the other one. Such
// steps are recorded in the file, and a difference there is logged and not counted.
func TestGolden(t *testing.T) {
	var llama goldenPico
	var ollama goldenOllama
	readGolden(t, "testdata/golden/pico.json", &llama)
	readGolden(t, "testdata/golden/pico-ollama.json", &ollama)
	sum := fmt.Sprintf("%x", sha256.Sum256(pico.GGUF()))
	if llama.SHA256 != sum || ollama.SHA256 != sum {
		t.Fatalf("the answers are of the models %s and %s, and the model is %s: make them again (engine/golden/README.md)", llama.SHA256, ollama.SHA256, sum)
	}
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	source, _ := f.String("tokenizer.chat_template")
	template, err := chat.New(source, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var prompts [][]int32
	var limits []int
	for i, run := range llama.Runs {
		text := run.Prompt
		if i < len(ollama.Answers) {
			if ollama.Answers[i].Text != run.Text {
				t.Errorf("%q: llama.cpp says %q and Ollama %q: the files do not belong together", run.Prompt, run.Text, ollama.Answers[i].Text)
			}
			message := chat.Message{Role: "user", Content: ollama.Answers[i].User}
			if text, err = template.Render(t.Context(), []chat.Message{message}, chat.Options{AddGenerationPrompt: true, Guard: tok.Guard}); err != nil || text != run.Prompt {
				t.Errorf("the template gives %q, %v, want %q", text, err, run.Prompt)
			}
		}
		ids := tok.Encode(text, true)
		if !slices.Equal(ids, run.IDs) {
			t.Errorf("%q: ids %v, want %v", text, ids, run.IDs)
		}
		prompts, limits = append(prompts, run.IDs), append(limits, len(run.Greedy))
	}
	got := generate(t, f, tok, prompts, limits, len(ollama.Answers))
	for i, run := range llama.Runs {
		want := run.Greedy
		if i < len(ollama.Answers) {
			if text := tok.Decode(got[i]); text != run.Text {
				t.Errorf("%q: got %q, want %q", run.Prompt, text, run.Text)
			}
			want = slices.DeleteFunc(slices.Clone(want), tok.IsEnd)
		}
		at := 0
		for at < min(len(want), len(got[i])) && want[at] == got[i][at] {
			at++
		}
		if at == len(want) && at == len(got[i]) {
			continue
		}
		if len(run.Ties) > 0 && at >= run.Ties[0].Step {
			t.Logf("%q: another token at step %d, after a near tie: %+v", run.Prompt, at, run.Ties)
			continue
		}
		t.Errorf("%q: got %v, want %v", run.Prompt, got[i], want)
	}
}

// generate continues all prompts greedily at once. The first ending end where the model ends them, the others go on.
func generate(t *testing.T, f *gguf.File, tok *tokenizer.Tokenizer, prompts [][]int32, limits []int, ending int) [][]int32 {
	t.Helper()
	inf, err := cpu.New(f, cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer inf.Close()
	e, err := infertest.Engine(inf, tok, engine.Config{Seats: 8, Budget: 64})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	var streams []*engine.Stream
	for i, p := range prompts {
		s, err := e.Add(ctx, engine.Request{Prompt: p, MaxTokens: limits[i], IgnoreEnd: i >= ending})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	out := make([][]int32, len(streams))
	for i, s := range streams {
		for event, err := range s.All() {
			if err != nil {
				t.Fatal(err)
			}
			if i >= ending || !tok.IsEnd(event.Token) {
				out[i] = append(out[i], event.Token)
			}
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return out
}
