package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
)

func TestGenerate(t *testing.T) {
	e := start(t, newEcho(64, 4, 100), engine.Config{Budget: 8, Seats: 4})
	for _, test := range []struct {
		name    string
		request engine.Request
		want    string
	}{
		{"to the end token", engine.Request{Prompt: prompt("hello")}, "hello|stop"},
		{"max_tokens", engine.Request{Prompt: prompt("hello"), MaxTokens: 3}, "hel|length"},
		{"whole characters only", engine.Request{Prompt: prompt("aé€𝄞")}, "aé€𝄞|stop"},
		{"cut within a character", engine.Request{Prompt: prompt("aé"), MaxTokens: 2}, "a\uFFFD|length"},
		{"stop string over several tokens", engine.Request{Prompt: prompt("one END two"), Stop: []string{"END"}}, "one |stop"},
		{"the stop string stays", engine.Request{Prompt: prompt("one END two"), Stop: []string{"END"}, KeepStop: true}, "one END|stop"},
		{"no stop string after all", engine.Request{Prompt: prompt("one EN"), Stop: []string{"END"}}, "one EN|stop"},
		{"held back at max_tokens", engine.Request{Prompt: prompt("one END"), Stop: []string{"END"}, MaxTokens: 6}, "one EN|length"},
		{"the first of two", engine.Request{Prompt: prompt("abcdef"), Stop: []string{"cde", "bc"}}, "a|stop"},
		{"stop string at max_tokens", engine.Request{Prompt: prompt("abc"), Stop: []string{"c"}, MaxTokens: 3}, "ab|stop"},
		{"stop token", engine.Request{Prompt: prompt("abc"), StopTokens: []int32{'b'}}, "a|stop"},
		{"min_tokens passes over stop strings", engine.Request{Prompt: prompt("a.b.c.d"), Stop: []string{"."}, MinTokens: 3}, "a.b|stop"},
		{"min_tokens forbids the end", engine.Request{
			Prompt: prompt("a"), MinTokens: 3, MaxTokens: 4, Sampling: sample.Params{LogitBias: map[int32]float32{'x': 5}},
		}, "axx|stop"},
		{"ignore_eos", engine.Request{Prompt: prompt("ab"), IgnoreEnd: true, MaxTokens: 4}, "ab|length"},
		{"the rest of the context", engine.Request{Prompt: prompt(strings.Repeat("x", 90))}, "xxxxxxxx|length"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ask(t, e, test.request); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	e := start(t, newEcho(64, 4, 20), engine.Config{})
	line := prompt("0123456789") // 12 tokens
	for _, test := range []struct {
		name, want string
		request    engine.Request
	}{
		{"prompt too long", "21 tokens. This model's maximum context length is 20", engine.Request{Prompt: make([]int32, 21)}},
		{"no room for an answer", "20 tokens. This model's maximum context length is 20", engine.Request{Prompt: make([]int32, 20)}},
		{"answer too long", "the prompt has 12 tokens and max_tokens is 9, together 21. This model's maximum context length is 20", engine.Request{Prompt: line, MaxTokens: 9}},
		{"no prompt", "no tokens", engine.Request{}},
		{"unknown token", "prompt token 1 is 258", engine.Request{Prompt: []int32{0, vocabSize}}},
		{"negative token", "prompt token 0 is -1", engine.Request{Prompt: []int32{-1}}},
		{"negative max_tokens", "max_tokens is -1", engine.Request{Prompt: line, MaxTokens: -1}},
		{"min over max", "min_tokens is 3: want 0 to max_tokens, which is 2", engine.Request{Prompt: line, MaxTokens: 2, MinTokens: 3}},
		{"empty stop", "stop string of 0 bytes", engine.Request{Prompt: line, Stop: []string{""}}},
		{"too many", "n is 129", engine.Request{Prompt: line, N: 129}},
		{"unknown stop token", "stop token 999", engine.Request{Prompt: line, StopTokens: []int32{999}}},
		{"sampling", "temperature is -1", engine.Request{Prompt: line, Sampling: sample.Params{Temperature: -1}}},
		{"too many stop tokens", "1025 stop tokens", engine.Request{Prompt: line, StopTokens: make([]int32, 1025)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := e.Add(t.Context(), test.request)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	many := slices.Repeat([]engine.Request{{Prompt: line, N: engine.MaxSequences}}, 33)
	if _, err := e.Add(t.Context(), many...); err == nil || !strings.Contains(err.Error(), "want at most 4096") {
		t.Errorf("more than the queue: got %v", err)
	}
	if got := ask(t, e, engine.Request{Prompt: line, MaxTokens: 8}); got != "01234567|length" {
		t.Errorf("a request that just fits: %q", got)
	}
}

// TestFullQueue fills the queue of an engine whose loop has not begun.
func TestFullQueue(t *testing.T) {
	e, err := infertest.Engine(newEcho(64, 4, 20), byteTokenizer(t), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	most := engine.Request{Prompt: prompt("a"), N: engine.MaxSequences}
	if _, err := e.Add(t.Context(), append(slices.Repeat([]engine.Request{most}, 31), engine.Request{Prompt: prompt("a"), N: 127})...); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Add(t.Context(), engine.Request{Prompt: prompt("b"), N: 2}); !errors.Is(err, engine.ErrFull) {
		t.Errorf("more than there is room for: %v", err)
	}
	if _, err := e.Add(t.Context(), engine.Request{Prompt: prompt("c")}); err != nil {
		t.Errorf("the last place: %v", err)
	}
}

// TestManyAtOnce runs requests of all sizes in little memory. Each gets the
// same answer as alone, though sequences are preempted.
func TestManyAtOnce(t *testing.T) {
	e := start(t, newEcho(24, 4, 96), engine.Config{Budget: 16, Seats: 8})
	var wg sync.WaitGroup
	for i := range 40 {
		line := strings.Repeat(fmt.Sprintf("%d-", i), 1+i%11)
		wg.Go(func() {
			s, err := e.Add(t.Context(), engine.Request{Prompt: prompt(line), N: 1 + i%3})
			if err != nil {
				t.Error(err)
				return
			}
			got, err := read(s)
			if err != nil {
				t.Error(err)
			}
			for _, text := range got {
				if text != line+"|stop" {
					t.Errorf("request %d: got %q, want %q", i, text, line)
				}
			}
			if len(got) != 1+i%3 {
				t.Errorf("request %d: %d texts, want %d", i, len(got), 1+i%3)
			}
		})
	}
	wg.Wait()
	stats := settled(t, e)
	if stats.Preemptions == 0 {
		t.Error("nobody was preempted: the test does not test what it says")
	}
	if stats.Open != 0 || stats.BlocksUsed != 0 || stats.Running != 0 || stats.Waiting != 0 {
		t.Errorf("after the last answer: %+v", stats)
	}
}

// settled puts an engine to sleep once it has nothing left to do, and returns its stats.
func settled(t *testing.T, e *engine.Engine) engine.Stats {
	t.Helper()
	if err := e.Sleep(t.Context(), 1, engine.SleepWait); err != nil {
		t.Fatal(err)
	}
	return e.Stats()
}

// TestSampledTokensDoNotDependOnTheBatch repeats seeded requests alone and among others.
func TestSampledTokensDoNotDependOnTheBatch(t *testing.T) {
	seed := int64(42)
	request := engine.Request{
		Prompt: prompt("abc"), MaxTokens: 30, N: 3, IgnoreEnd: true,
		Sampling: sample.Params{Temperature: 5, TopP: 0.95, RepetitionPenalty: 1.1, Seed: &seed},
	}
	var runs [][]string
	for _, cfg := range []engine.Config{{}, {Budget: 3, Seats: 3}, {Budget: 9, Seats: 8}} {
		e := start(t, newEcho(26, 4, 96), cfg)
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			if _, err := e.Add(ctx, engine.Request{Prompt: prompt(strings.Repeat("noise", rand.IntN(8))), MaxTokens: 40, IgnoreEnd: true, Sampling: sample.Params{Temperature: 3}}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := e.Add(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := read(s)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		runs = append(runs, texts)
	}
	if runs[0][0] == runs[0][1] || len(runs[0]) != 3 {
		t.Errorf("the three sequences are not three: %q", runs[0])
	}
	for _, run := range runs[1:] {
		if diff := cmp.Diff(runs[0], run); diff != "" {
			t.Errorf("another batch, another text (-first +now):\n%s", diff)
		}
	}
}

func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newEcho(16, 4, 64)
		m.latency = 10 * time.Millisecond
		e := start(t, m, engine.Config{})
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		s, err := e.Add(ctx, engine.Request{Prompt: prompt(strings.Repeat("x", 20)), N: 2})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		cancel(gone)
		synctest.Wait()
		if _, err := s.Next(); !errors.Is(err, gone) {
			t.Errorf("after the client left: %v, want %v", err, gone)
		}
		time.Sleep(25 * time.Millisecond) // the step under way, and no other
		synctest.Wait()
		before := len(m.Steps())
		time.Sleep(time.Second)
		if got := e.Stats(); got.Open != 0 || got.BlocksUsed != 0 || len(m.Steps()) != before {
			t.Errorf("a second after the client left: %+v, %d steps later", got, len(m.Steps())-before)
		}
	})
}

func TestCloseIsLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newEcho(16, 4, 64)
		m.latency = time.Millisecond
		e := start(t, m, engine.Config{})
		s, err := e.Add(t.Context(), engine.Request{Prompt: prompt("hello")})
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range s.All() {
			if err != nil || ev.Text != "h" {
				t.Fatalf("first event %+v, %v", ev, err)
			}
			break
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if got := e.Stats(); got.Open != 0 || got.BlocksUsed != 0 {
			t.Errorf("after Close: %+v", got)
		}
		if _, err := s.Next(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestFailedStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newEcho(16, 4, 64)
		m.latency = time.Millisecond
		e := start(t, m, engine.Config{Seats: 1})
		var streams []*engine.Stream
		for range 3 { // one runs, two wait
			s, err := e.Add(t.Context(), engine.Request{Prompt: prompt("hello")})
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		if ev, err := streams[0].Next(); err != nil || ev.Text != "h" {
			t.Fatalf("first event: %+v, %v", ev, err)
		}
		broken := errors.New("the device fell off")
		m.failNext(broken)
		for i, s := range streams {
			var err error
			for err == nil {
				_, err = s.Next()
			}
			var step *engine.StepError
			if !errors.As(err, &step) || !strings.Contains(err.Error(), broken.Error()) {
				t.Errorf("stream %d ended with %v, want %v", i, err, broken)
			}
		}
		synctest.Wait()
		if got := e.Stats(); got.Failure == nil || got.Open != 0 || got.BlocksUsed != 0 {
			t.Errorf("after the failure: %+v", got)
		}
		if got := ask(t, e, engine.Request{Prompt: prompt("again")}); got != "again|stop" {
			t.Errorf("the next request: %q", got)
		}
		if got := e.Stats(); got.Failure != nil {
			t.Errorf("after a good step: %+v", got)
		}
	})
}

func TestStop(t *testing.T) {
	m := newEcho(16, 4, 64)
	e, err := infertest.Engine(m, byteTokenizer(t), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	early, err := e.Add(t.Context(), engine.Request{Prompt: prompt("hello")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := early.Next(); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("a stream of a stopped engine: %v", err)
	}
	if _, err := e.Add(t.Context(), engine.Request{Prompt: prompt("late")}); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("add to a stopped engine: %v", err)
	}
	if err := e.Sleep(t.Context(), 1, engine.SleepWait); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("sleep of a stopped engine: %v", err)
	}
	if _, err := e.Wake(t.Context()); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("wake of a stopped engine: %v", err)
	}
}

func TestLogprobsAndScores(t *testing.T) {
	e := start(t, newEcho(16, 4, 64), engine.Config{Budget: 4, Seats: 2})
	s, err := e.Add(t.Context(), engine.Request{
		Prompt: prompt("ab"), MaxTokens: 1, ScorePrompt: true, Sampling: sample.Params{Logprobs: true, Top: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	// The model gives '\n' a logit of 10 after every prompt without one; the others have 0 to 1.
	sure, no := float32(-0.02), float32(-9.52)
	want := engine.Event{
		Choice: sample.Choice{Token: 'a', Logprob: sure, Top: []sample.Alternative{{Token: 'a', Logprob: sure}}},
		Text:   "a", Finish: engine.FinishLength,
		Prompt: []sample.Choice{
			{Token: 'a', Logprob: no, Top: []sample.Alternative{{Token: '\n', Logprob: sure}}},
			{Token: 'b', Logprob: no, Top: []sample.Alternative{{Token: '\n', Logprob: sure}}},
			{Token: '\n', Logprob: sure, Top: []sample.Alternative{{Token: '\n', Logprob: sure}}},
		},
	}
	near := cmp.Comparer(func(a, b float32) bool { return a > -1 == (b > -1) && a-b < 0.52 && b-a < 0.52 })
	if diff := cmp.Diff(want, ev, near); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}

	s, err = e.Add(t.Context(), engine.Request{Prompt: prompt("ab"), ScorePrompt: true, NoTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	ev, err = s.Next()
	if err != nil || ev.Token != -1 || len(ev.Prompt) != 3 || ev.Text != "" || ev.Finish != engine.FinishLength {
		t.Errorf("a prompt only: %+v, %v", ev, err)
	}
}

func TestStats(t *testing.T) {
	e := start(t, newEcho(16, 4, 64), engine.Config{})
	ask(t, e, engine.Request{Prompt: prompt("hello"), N: 2}) // 7 tokens, two times 5 and the end
	got := settled(t, e)
	if got.PromptTokens != 7 || got.GeneratedTokens != 12 || got.State != engine.Asleep || got.BlocksTotal != 16 {
		t.Errorf("after a request: %+v", got)
	}
}
