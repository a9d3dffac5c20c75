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

// echo is a model that answers the first line of its prompt with that line, and
// ends. It keeps tokens where a model keeps keys and values, so wrong books about
// blocks give wrong answers.
type echo struct {
	config  model.Config
	latency time.Duration // of one step, virtual time

	mu     sync.Mutex
	memory [][]int32
	level  int
	fail   error // of the next Forward
	steps  int
	sleeps []int // levels that Sleep was called with
}

func newEcho(blocks, size, context int) *echo {
	m := &echo{config: model.Config{Vocab: vocabSize, Context: context}, memory: make([][]int32, blocks)}
	for i := range m.memory {
		m.memory[i] = make([]int32, size)
	}
	return m
}

func (m *echo) Config() model.Config { return m.config }
func (m *echo) Blocks() (count, size int) {
	return len(m.memory), len(m.memory[0])
}
func (m *echo) MemoryBytes() int64 { return 0 }
func (m *echo) Close() error       { return nil }

func (m *echo) Forward(ctx context.Context, b *infer.Batch) ([][]float32, error) {
	if m.latency > 0 {
		time.Sleep(m.latency)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	count, size := m.Blocks()
	if err := b.Check(m.config, count, size); err != nil {
		return nil, err
	}
	if m.level > 0 {
		return nil, infer.ErrAsleep
	}
	if err := m.fail; err != nil {
		m.fail = nil
		return nil, err
	}
	m.steps++
	logits := make([][]float32, len(b.Items))
	for i, item := range b.Items {
		for j, token := range item.Tokens {
			pos := item.Pos + j
			m.memory[item.Blocks[pos/size]][pos%size] = token
		}
		if item.Logits {
			logits[i] = make([]float32, vocabSize)
			logits[i][m.answer(item, size)] = 10
		}
	}
	return logits, nil
}

// answer reads a sequence back and says how it goes on.
func (m *echo) answer(item infer.Item, size int) int32 {
	var text []int32
	for pos := range item.Pos + len(item.Tokens) {
		if token := m.memory[item.Blocks[pos/size]][pos%size]; token != bos {
			text = append(text, token)
		}
	}
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
	defer m.mu.Unlock()
	m.sleeps = append(m.sleeps, level)
	m.level = max(m.level, level)
	for _, block := range m.memory {
		clear(block)
	}
	return nil
}

func (m *echo) Wake(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail; err != nil {
		m.fail = nil
		return err
	}
	m.level = 0
	return nil
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
	e, err := engine.New(m, byteTokenizer(t), cfg)
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

// prompt is the tokens of a line.
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
