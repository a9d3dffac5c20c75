package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// Tokens of the test vocabulary: the 256 bytes, then these.
const (
	bos = 256 + iota
	eos
	vocabSize
)

// byteTokenizer has one token for each byte, whose id is the byte.
func byteTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	v := tokenizer.Vocab{
		Model: "gpt2", Pre: "gpt-2", BOS: bos, EOS: eos, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: tokenizer.None,
		Merges: []string{}, Types: slices.Repeat([]tokenizer.Type{tokenizer.Normal}, vocabSize),
	}
	for b := range 256 {
		v.Tokens = append(v.Tokens, tokenizer.ByteText(string([]byte{byte(b)})))
	}
	v.Tokens = append(v.Tokens, "<s>", "</s>")
	v.Types[bos], v.Types[eos] = tokenizer.Control, tokenizer.Control
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// echo is a model that answers the first line of its prompt with that line, and ends.
type echo struct {
	*infertest.Fake
	latency time.Duration // of one step

	mu     sync.Mutex
	fail   error // of the next Forward or Wake
	sleeps []int // levels that Sleep was called with
}

func newEcho(blocks, size, length int) *echo {
	m := &echo{}
	m.Fake = &infertest.Fake{
		Shape: model.Config{Vocab: vocabSize, Context: length}, Count: blocks, Size: size, Next: answer,
		Before: func(context.Context, *infer.Batch) error {
			time.Sleep(m.latency)
			return m.failure()
		},
	}
	return m
}

// answer returns the next token of a sequence.
func answer(sequence []int32) int32 {
	text := slices.DeleteFunc(slices.Clone(sequence), func(t int32) bool { return t == bos })
	line := slices.Index(text, '\n')
	if line < 0 {
		return '\n'
	}
	if made := len(text) - line - 1; made < line {
		return text[made]
	}
	return eos
}

func (m *echo) Sleep(level int) error {
	m.mu.Lock()
	m.sleeps = append(m.sleeps, level)
	m.mu.Unlock()
	return m.Fake.Sleep(level)
}

func (m *echo) Wake(ctx context.Context) error {
	if err := m.failure(); err != nil {
		return err
	}
	return m.Fake.Wake(ctx)
}

// failure returns the error of failNext, once.
func (m *echo) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.fail
	m.fail = nil
	return err
}

// failNext makes the next Forward or Wake fail.
func (m *echo) failNext(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// start runs an engine until the test ends.
func start(t *testing.T, m *echo, cfg engine.Config) *engine.Engine {
	t.Helper()
	e, err := infertest.Engine(m, byteTokenizer(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return e
}

// prompt returns the tokens of a line.
func prompt(line string) []int32 {
	tokens := []int32{bos}
	for _, b := range []byte(line + "\n") {
		tokens = append(tokens, int32(b))
	}
	return tokens
}

// read collects a stream: each sequence's text with its finish reason.
func read(s *engine.Stream) ([]string, error) {
	var texts []string
	for ev, err := range s.All() {
		if err != nil {
			return texts, err
		}
		for len(texts) <= ev.Index {
			texts = append(texts, "")
		}
		texts[ev.Index] += ev.Text
		if ev.Finish != "" {
			texts[ev.Index] += fmt.Sprintf("|%s", ev.Finish)
		}
	}
	return texts, nil
}

// ask runs one request of one sequence to its end.
func ask(t *testing.T, e *engine.Engine, r engine.Request) string {
	t.Helper()
	s, err := e.Add(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := read(s)
	if err != nil {
		t.Fatal(err)
	}
	return texts[0]
}
