package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"github.com/rouse-dev/rouse/internal/promtext"
)

func TestOllama(t *testing.T) {
	t.Parallel()
	p := newOllama(t, 1)
	if _, err := clientsGo(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 16*patience)
	defer cancel()
	t.Run("openai-go", func(t *testing.T) { testOllamaOpenAI(ctx, t, newOpenAI(p)) })
	t.Run("node", func(t *testing.T) { runNode(ctx, t, "ollama.mjs", p.server.url) })
	t.Run("anthropic", func(t *testing.T) { runNode(ctx, t, "anthropic.mjs", p.server.url, "ollama") })
	t.Run("responses", func(t *testing.T) { runNode(ctx, t, "responses.mjs", p.server.url, "ollama") })
	t.Run("stored responses", func(t *testing.T) { runNode(ctx, t, "stored.mjs", p.server.url, "pico") })
	t.Run("others", func(t *testing.T) { runNode(ctx, t, "others.mjs", p.server.url, "ollama") })
	t.Run("go", func(t *testing.T) { runGo(t, p.server.url, "ollama") })
	t.Run("command line", func(t *testing.T) { testOllamaCommand(ctx, t, p) })
	t.Run("a client that leaves", func(t *testing.T) { testOllamaLeave(t, p) })
	t.Run("keep_alive", func(t *testing.T) { testOllamaKeepAlive(ctx, t, p) })
	t.Run("alike", func(t *testing.T) { testOllamaAlike(ctx, t, p) })
	t.Run("sleep", func(t *testing.T) { testOllamaSleep(ctx, t, p) })
}

func testOllamaOpenAI(ctx context.Context, t *testing.T, c openai.Client) {
	got, err := c.Chat.Completions.New(ctx, chat("pico", "echo apple pear"))
	if err != nil {
		t.Fatal(err)
	}
	if text := got.Choices[0].Message.Content; text != "apple pear" || got.Choices[0].FinishReason != "stop" {
		t.Errorf("answered %q (%s), want %q (stop)", text, got.Choices[0].FinishReason, "apple pear")
	}
	q := chat("endless", "go")
	q.MaxCompletionTokens = openai.Int(3) // Ollama itself ignores it
	if got, err = c.Chat.Completions.New(ctx, q); err != nil {
		t.Fatal(err)
	}
	if text := got.Choices[0].Message.Content; text != " w0 w1 w2" || got.Choices[0].FinishReason != "length" {
		t.Errorf("with max_completion_tokens 3: answered %q (%s)", text, got.Choices[0].FinishReason)
	}
	if text, err := streamed(c.Chat.Completions.NewStreaming(ctx, chat("count", "go"))); err != nil || text != " w0 w1 w2 w3 w4 w5 w6 w7" {
		t.Errorf("streamed %q, %v", text, err)
	}
	vectors, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "pico", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("red")}})
	if err != nil || len(vectors.Data) != 1 || len(vectors.Data[0].Embedding) < 8 {
		t.Errorf("embeddings: %v, %v", vectors, err)
	}
}

// testOllamaCommand uses Ollama's own command line as the client.
func testOllamaCommand(ctx context.Context, t *testing.T, p *place) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "pico", "echo apple pear"}, "apple pear"},
		{[]string{"list"}, "count:latest"},
		{[]string{"ps"}, "pico:latest"},
		{[]string{"show", "pico"}, "num_thread"},
	} {
		cmd := exec.CommandContext(ctx, realOllama(t), tt.args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "OLLAMA_HOST="+p.server.url)
		var out bytes.Buffer
		var failure bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &failure
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), tt.want) {
			t.Errorf("ollama %s: %v; it printed %q and %q, want %q", strings.Join(tt.args, " "), err, out.String(), failure.String(), tt.want)
		}
	}
}

// testOllamaLeave: a client that leaves stops the generation, and the next request
// is quick. Ollama itself may miss it: its handler goes while a token is on its
// way to it, and the one slot is then taken until the function finds it hung and
// starts it again. That is rare, so one of three times must be right; a function
// that did not pass the end of the client on would be wrong each time.
func testOllamaLeave(t *testing.T, p *place) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*patience)
	defer cancel()
	c := newOpenAI(p)
	for range 3 {
		leaving, leave := context.WithCancel(ctx)
		stream := c.Chat.Completions.NewStreaming(leaving, chat("endless", "go"))
		for range 3 {
			if !stream.Next() {
				t.Fatalf("the stream ended: %v", stream.Err())
			}
		}
		leave()
		stream.Close()
		begin := time.Now()
		got, err := p.generated(ctx, "endless", 2, "")
		took := time.Since(begin)
		if err == nil && got == " w0 w1" && took < patience/2 {
			return
		}
		t.Logf("the next request: answered %q, %v after %s", got, err, took)
		if err := retry(func() error {
			_, err := p.generated(ctx, "endless", 2, "")
			return err
		}); err != nil {
			t.Fatalf("Ollama was not started again: %v", err)
		}
	}
	t.Error("the runtime goes on for a client that has left")
}

// testOllamaKeepAlive: whether a model is in memory is Rouse's affair, not a client's.
func testOllamaKeepAlive(ctx context.Context, t *testing.T, p *place) {
	if _, err := p.generated(ctx, "count", 2, ""); err != nil {
		t.Fatal(err)
	}
	before := p.runners(t)
	for range 2 {
		if got, err := p.generated(ctx, "count", 2, `,"keep_alive":0`); err != nil || got != " w0 w1" {
			t.Errorf("answered %q, %v", got, err)
		}
	}
	if after := p.runners(t); !slices.Equal(before, after) || len(after) == 0 {
		t.Errorf("the runners are %v, were %v: a client unloaded the model", after, before)
	}
}

// testOllamaSleep: a sleep unloads the model and keeps the process, and the next request wakes it.
func testOllamaSleep(ctx context.Context, t *testing.T, p *place) {
	if _, err := p.generated(ctx, "count", 2, ""); err != nil {
		t.Fatal(err)
	}
	awake, err := p.instance("count")
	if err != nil {
		t.Fatal(err)
	}
	with := len(p.runners(t))
	if out, err := p.rouse("sleep", "count"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err = retry(func() error {
		i, err := p.instance("count")
		if err == nil && (i.State != "asleep" || i.PID != awake.PID || len(p.runners(t)) != with-1) {
			err = fmt.Errorf("the instance is %+v with the runners %v, want it asleep in process %d with one of %d less", i, p.runners(t), awake.PID, with)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.generated(ctx, "count", 2, ""); err != nil || got != " w0 w1" {
		t.Errorf("out of sleep: answered %q, %v", got, err)
	}
	if i, err := p.instance("count"); err != nil || i.State != "awake" || i.PID != awake.PID {
		t.Errorf("the instance is %+v, %v, want it awake in process %d", i, err, awake.PID)
	}
}

// TestOllamaRunnerDies kills the process with the model in the middle of an answer.
// Ollama itself ends such a stream of events as if all were well.
func TestOllamaRunnerDies(t *testing.T) {
	t.Parallel()
	p := newOllama(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	kill := func() {
		t.Helper()
		runners := p.runners(t)
		if len(runners) != 1 {
			t.Fatalf("the runners are %v, want one", runners)
		}
		pid, err := strconv.Atoi(runners[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("events", func(t *testing.T) {
		c := newOpenAI(p)
		stream := c.Chat.Completions.NewStreaming(ctx, chat("endless", "go"))
		for range 3 {
			if !stream.Next() {
				t.Fatalf("the stream ended: %v", stream.Err())
			}
		}
		kill()
		if text, err := streamed(stream); err == nil {
			t.Errorf("the stream ended cleanly after %q", text)
		}
	})
	t.Run("lines", func(t *testing.T) {
		resp, err := p.native(ctx, "/api/generate", `{"model":"endless","prompt":"go"}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			raw, _ := io.ReadAll(resp.Body)
			t.Fatalf("%s: %s", resp.Status, raw)
		}
		lines := bufio.NewScanner(resp.Body)
		for range 3 {
			if !lines.Scan() {
				t.Fatalf("the stream ended: %v", lines.Err())
			}
		}
		kill()
		var last string
		for lines.Scan() {
			last = lines.Text()
		}
		var e struct{ Error string }
		if err := json.Unmarshal([]byte(last), &e); err != nil || e.Error == "" {
			t.Errorf("the last line is %q (%v), want an error", last, err)
		}
	})
	if got, err := p.generated(ctx, "endless", 2, ""); err != nil || got != " w0 w1" {
		t.Errorf("afterwards: answered %q, %v", got, err)
	}
}

// TestOllamaConcurrency: two answers run at a time, never more; the others wait outside.
func TestOllamaConcurrency(t *testing.T) {
	t.Parallel()
	const streams, parallel = 6, 2
	p := newOllama(t, parallel)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	if _, err := p.generated(ctx, "endless", 1, ""); err != nil {
		t.Fatal(err)
	}
	// Answers have no end of their own, so those that have begun are generated at the same time.
	c := newOpenAI(p)
	began := make(chan context.CancelFunc, streams)
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			one, leave := context.WithCancel(ctx)
			defer leave()
			stream := c.Chat.Completions.NewStreaming(one, chat("endless", "go"))
			defer stream.Close()
			for n := 0; stream.Next(); n++ {
				if n == 0 {
					began <- leave
				}
			}
		})
	}
	defer all.Wait()
	defer cancel()
	next := func() (leave context.CancelFunc) {
		select {
		case leave = <-began:
		case <-ctx.Done():
			t.Fatal("too few answers have begun")
		}
		return leave
	}
	first := next()
	for range parallel - 1 {
		next()
	}
	for left := streams; left > parallel; left-- {
		if err := retry(func() error { return p.counts("endless", parallel, left-parallel) }); err != nil {
			t.Fatal(err)
		}
		if len(began) > 0 {
			t.Fatalf("more than %d answers are generated at the same time", parallel)
		}
		first() // its place is the next one's
		first = next()
	}
}

// counts says whether as many requests of a function run and wait.
func (p *place) counts(function string, running, waiting int) error {
	resp, err := http.Get(p.server.url + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	found, err := promtext.Parse(resp.Body)
	if err != nil {
		return err
	}
	gauge := func(name string) (v float64) {
		for _, m := range found["rouse_activator_"+name].GetMetric() {
			if promtext.Label(m, "function") == "default/"+function {
				v = m.GetGauge().GetValue()
			}
		}
		return v
	}
	if runs, waits := gauge("running_requests"), gauge("held_requests"); int(runs) != running || int(waits) != waiting {
		return fmt.Errorf("%v requests run and %v wait, want %d and %d", runs, waits, running, waiting)
	}
	return nil
}

// TestOllamaOrphans kills what holds Ollama, with no chance to clean up.
func TestOllamaOrphans(t *testing.T) {
	t.Parallel()
	p := newOllama(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	if _, err := p.generated(ctx, "count", 2, ""); err != nil {
		t.Fatal(err)
	}
	i, err := p.instance("count")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the function", func(t *testing.T) {
		before := p.runners(t)
		parent, err := parentOf(i.PID)
		if err != nil || parent == p.server.cmd.Process.Pid || parent <= 1 {
			t.Fatalf("the runtime %d is a child of %d (%v), want a function's process", i.PID, parent, err)
		}
		if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		err = retry(func() error {
			for _, pid := range p.runners(t) {
				if slices.Contains(before, pid) {
					return fmt.Errorf("the runner %s is left", pid)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if got, err := p.generated(ctx, "count", 2, ""); err != nil || got != " w0 w1" {
			t.Errorf("afterwards: answered %q, %v", got, err)
		}
	})
	t.Run("the server", func(t *testing.T) {
		if err := p.server.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.alone(); err != nil {
			t.Error(err)
		}
	})
}
