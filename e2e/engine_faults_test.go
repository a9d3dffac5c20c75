package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// longTexts are bodies of n streams that last: half of them greedy, half drawn with a seed.
func longTexts(n, tokens int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		sampling := `"temperature":0`
		if i%2 == 1 {
			sampling = fmt.Sprintf(`"temperature":1.2,"seed":%d`, i)
		}
		bodies[i] = fmt.Sprintf(`{"model":"pico","prompt":"story number %d of the sea and the sky","stream":true,"ignore_eos":true,"max_tokens":%d,%s}`, i, tokens, sampling)
	}
	return bodies
}

// streams runs streams at once and returns their texts. Each must end by its length.
func (e *engineServer) streams(ctx context.Context, t *testing.T, bodies []string, seen func()) []string {
	t.Helper()
	texts := make([]string, len(bodies))
	var all sync.WaitGroup
	for i, body := range bodies {
		all.Go(func() {
			text, finish, err := e.stream(ctx, body, seen)
			if err != nil || finish != "length" {
				t.Errorf("%s: finish %q, %v", body, finish, err)
			}
			texts[i] = text
		})
	}
	all.Wait()
	return texts
}

// TestEngineWorkerKilled kills the worker's process again and again while it
// answers, or one of two that share the model: nobody may notice.
func TestEngineWorkerKilled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args    []string
		workers int
	}{
		"one process": {[]string{"--worker", "process"}, 1},
		"two shards":  {[]string{"--shards", "2"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			bodies := longTexts(20, 250)
			e := newEngine(t, append(test.args, "--model", "pico")...)
			var chunks atomic.Int64
			want := e.streams(ctx, t, bodies, func() { chunks.Add(1) })
			got := e.underFire(ctx, t, bodies, chunks.Load(), test.workers)
			for i := range bodies {
				if got[i] != want[i] {
					t.Errorf("%s: with the worker killed the text is\n%q, without\n%q", bodies[i], got[i], want[i])
				}
			}
			e.idle(t)
			e.becomes(t, "rouse_engine_worker_restarts_total", kills)
		})
	}
}

// kills is how often a worker is killed.
const kills = 6

// underFire runs streams that have so many chunks together, while workers are killed at moments that are drawn.
func (e *engineServer) underFire(ctx context.Context, t *testing.T, bodies []string, total int64, workers int) []string {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	// The moments are numbers of chunks of all streams. A sequence with which three workers in a row die is the engine's
	// to give up, so between two of them every sequence has had tokens: chunks may be read long after they were made.
	part := total / (kills + 1)
	moments := make(chan struct{}, kills) // closed when the streams have ended
	due := map[int64]bool{}
	for k := range int64(kills) {
		due[k*part+1+r.Int64N(part/2)] = true
	}
	var killer sync.WaitGroup
	killer.Go(func() {
		killed := 0
		for range moments {
			if err := retry(func() error { return e.killWorker("engine worker", workers, r.IntN(workers)) }); err != nil {
				t.Error(err)
				continue
			}
			killed++
			if err := e.generates(10 * len(bodies)); err != nil {
				t.Error(err)
			}
		}
		if killed != kills {
			t.Errorf("%d of %d kills", killed, kills)
		}
	})
	var chunks atomic.Int64
	texts := e.streams(ctx, t, bodies, func() {
		if due[chunks.Add(1)] {
			moments <- struct{}{}
		}
	})
	close(moments)
	killer.Wait()
	return texts
}

// generates waits until the engine has generated so many tokens more, or has nothing to do.
func (e *engineServer) generates(tokens int) error {
	before, err := e.metric("vllm:generation_tokens_total")
	if err != nil {
		return err
	}
	return retry(func() error {
		now, err := e.metric("vllm:generation_tokens_total")
		if err != nil || now >= before+float64(tokens) {
			return err
		}
		running, err := e.metric("vllm:num_requests_running")
		if err != nil {
			return err
		}
		waiting, err := e.metric("vllm:num_requests_waiting")
		if err != nil || running+waiting == 0 {
			return err
		}
		return fmt.Errorf("%v tokens were generated, want %v", now, before+float64(tokens))
	})
}

// killWorker kills one of the worker's processes. There must be so many, with these words in their command lines.
func (e *engineServer) killWorker(words string, workers, which int) error {
	pids, err := e.workers(words)
	if err != nil {
		return err
	}
	if len(pids) != workers {
		return fmt.Errorf("the workers are %v, want %d", pids, workers)
	}
	if err := syscall.Kill(pids[which], syscall.SIGKILL); err != nil {
		return err
	}
	return retry(func() error { // so that nobody is killed twice, nor a rank of a group that ends
		left, err := e.workers(words)
		if err == nil && slices.ContainsFunc(left, func(pid int) bool { return slices.Contains(pids, pid) }) {
			err = fmt.Errorf("of the workers %v there are %v", pids, left)
		}
		return err
	})
}

// idle waits until nothing runs, waits or holds memory.
func (e *engineServer) idle(t *testing.T) {
	t.Helper()
	for _, name := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} {
		e.becomes(t, name, 0)
	}
}

// TestEngineClientsLeave has a hundred clients leave: before the answer, and in the middle of it.
func TestEngineClientsLeave(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	e := newEngine(t, "--model", "pico", "--lora", "shout=pico/shout", "--max-num-seqs", "8", "--num-speculative-tokens", "3")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			mine, leave := context.WithCancelCause(ctx)
			defer leave(nil)
			left := errors.New("left")
			body := fmt.Sprintf(`{"model":%q,"prompt":"story of cat %d","stream":true,"ignore_eos":true,"max_tokens":450,"n":%d,"temperature":1}`,
				[]string{"pico", "shout"}[i%2], i, 1+i%3)
			chunks := 0
			if i%10 == 0 {
				leave(left)
			}
			text, finish, err := e.stream(mine, body, func() {
				if chunks++; chunks == i%10*2 {
					leave(left)
				}
			})
			if finish != "" && i%3 == 0 || !errors.Is(err, left) {
				t.Errorf("client %d left and has %q (%s), %v", i, text, finish, err)
			}
		})
	}
	all.Wait()
	e.idle(t)
	if _, raw, err := e.post(ctx, "/v1/chat/completions", question("shout", "echo apple pear", `"temperature":0`)); err != nil {
		t.Error(err)
	} else if text, err := answerOf(raw); text != "APPLE PEAR" {
		t.Errorf("afterwards: %q, %v", text, err)
	}
}

// TestEngineSmallCache gives the cache room for three blocks: what does not fit
// is refused, and all else is answered, one after the other if need be.
func TestEngineSmallCache(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := newEngine(t, "--model", "pico", "--kv-cache-memory-bytes", "64KiB")
	asks := []struct {
		body   string
		status int
		words  string
	}{
		{`{"model":"pico","prompt":"` + strings.Repeat("red ", 30) + `","max_tokens":5}`, 400, "context_length_exceeded"},
		{`{"model":"pico","prompt":"red","max_tokens":60}`, 400, "context_length_exceeded"},
		{`{"model":"pico","prompt":"red","max_tokens":40,"ignore_eos":true,"n":6}`, 200, `"completion_tokens":240`},
		{`{"model":"pico","prompt":"blue","max_tokens":40,"ignore_eos":true}`, 200, `"completion_tokens":40`},
	}
	var all sync.WaitGroup
	for _, a := range asks {
		all.Go(func() {
			status, raw, err := e.post(ctx, "/v1/completions", a.body)
			if err != nil || status != a.status || !bytes.Contains(raw, []byte(a.words)) {
				t.Errorf("%s: status %d, %s, %v; want %d and %s", a.body, status, raw, err, a.status, a.words)
			}
		})
	}
	all.Wait()
	e.idle(t)
}

// TestEngineBadAdapters asks for adapters that are not there or do not fit.
func TestEngineBadAdapters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	model := generate(t, dir, "llama3")
	empty, text := filepath.Join(dir, "empty"), filepath.Join(dir, "text.gguf")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte("no adapter"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, "--model", model, "--name", "other")
	for path, words := range map[string]string{
		"/no/where":  "no such file",
		"pico/none":  "pico/none",
		"pico/shout": "made for another model",
		empty:        "adapter_config.json",
		text:         text,
		model:        "adapter", // a model is none
	} {
		status, raw, err := e.post(ctx, "/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name":"a","lora_path":%q}`, path))
		if err != nil || status != 400 || !bytes.Contains(raw, []byte(words)) {
			t.Errorf("%s: status %d, %s, %v; want 400 and %q", path, status, raw, err, words)
		}
	}
	status, raw, err := e.post(ctx, "/v1/completions", `{"model":"a","prompt":"red"}`)
	if err != nil || status != 404 {
		t.Errorf("a model that was not loaded: status %d, %s, %v", status, raw, err)
	}
	if status, raw, err = e.post(ctx, "/v1/completions", `{"model":"other","prompt":"red","max_tokens":2}`); err != nil || status != 200 {
		t.Errorf("the model itself: status %d, %s, %v", status, raw, err)
	}
}

// TestEngineMissingAdapter declares an adapter that is not there: the function does not start, and says why.
func TestEngineMissingAdapter(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	declared, err := os.ReadFile(adapters)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "missing.yaml")
	if err := os.WriteFile(file, bytes.Replace(declared, []byte("pico/pirate"), []byte("pico/none"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newServer(t, "-f", file)
	c := newOpenAI(p, option.WithMaxRetries(0))
	_, err = c.Chat.Completions.New(ctx, certain("pico", "echo red"))
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 503 || e.Code != "start_failed" || strings.Contains(e.Message, "pirate") {
		t.Errorf("the error is %v, want 503 start_failed and nothing of the adapters", err)
	}
	if _, err := p.rouse("run", "-q", "pico", "echo red"); err == nil || !strings.Contains(err.Error(), "there are pirate, shout") {
		t.Errorf("rouse run: %v, want what there is", err)
	}
}
