package engine

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// byteVocabulary returns a tokenizer of the 256 bytes and two ends.
func byteVocabulary(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	v := tokenizer.Vocab{
		Model: "gpt2", Pre: "gpt-2", BOS: 256, EOS: 257, EOT: tokenizer.None, EOM: tokenizer.None, Unknown: tokenizer.None,
		Merges: []string{}, Types: slices.Repeat([]tokenizer.Type{tokenizer.Normal}, 258),
	}
	for b := range 256 {
		v.Tokens = append(v.Tokens, tokenizer.ByteText(string([]byte{byte(b)})))
	}
	v.Tokens = append(v.Tokens, "<s>", "</s>")
	v.Types[256], v.Types[257] = tokenizer.Control, tokenizer.Control
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestFailedAdmission checks that a request that fails in the loop leaves no sequence of its stream open.
func TestFailedAdmission(t *testing.T) {
	d, err := infer.NewSimulated(infer.SimulatedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := Over(worker.New(worker.Config{}), worker.Describe(d), byteVocabulary(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Add(t.Context(), Request{Prompt: []int32{65}, MaxTokens: 2, StopTokens: []int32{5}, Resume: [][]int32{{5, 6}}}, Request{Prompt: []int32{66}})
	if err != nil {
		t.Fatal(err)
	}
	e.loop.deliver(t.Context())
	if _, err := s.Next(); err == nil {
		t.Error("tokens after the end of a text are taken")
	}
	if open := e.Stats().Open; open != 0 {
		t.Errorf("%d sequences are open", open)
	}
}

// life is the number of steps after which a benchmark replaces its engine.
const life = 900

// busy returns an engine with n sequences that decode, in place of Run. They fill their blocks at different
// times, and don't share the lines of a cache set.
func busy(b *testing.B, n int) *loop {
	d, err := infer.NewSimulated(infer.SimulatedConfig{Context: 128 + life, Blocks: n * (128 + life) / 16})
	if err != nil {
		b.Fatal(err)
	}
	e, err := Over(worker.New(worker.Config{}), worker.Describe(d), byteVocabulary(b), Config{Seats: n, Budget: 128 * n})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		prompt := slices.Repeat([]int32{65}, 20+i*37%64)
		prompt[0] = int32(i)
		if _, err := e.Add(b.Context(), Request{Prompt: prompt, IgnoreEnd: true}); err != nil {
			b.Fatal(err)
		}
	}
	e.loop.deliver(context.Background())
	return e.loop
}

// steps calls step with an engine of n sequences, once for each of b's loops, and reports the times that it returns.
func steps(b *testing.B, n int, step func(*loop) time.Duration) {
	var e *loop
	var times []time.Duration
	left := 0
	b.ReportAllocs()
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			e, left = busy(b, n), life
			for range 2 { // the prompts, and one-time growth
				step(e)
			}
			runtime.GC()
			b.StartTimer()
		}
		left--
		times = append(times, step(e))
	}
	report(b, times)
}

// report adds the median and the best of some times, in µs.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "µs/p50")
	b.ReportMetric(float64(times[0].Nanoseconds())/1e3, "µs/min")
}

// BenchmarkSchedule256 measures the schedule, the encoding and the update of a step of 256 sequences.
func BenchmarkSchedule256(b *testing.B) {
	var frame []byte
	token := []int32{'x'}
	steps(b, 256, func(e *loop) time.Duration {
		began := time.Now()
		batch := e.sched.Schedule()
		e.pack(batch)
		frame = worker.AppendBatch(frame[:0], &e.batch)
		f := e.popFlight()
		e.results = e.results[:0]
		for i := range f.items {
			if f.items[i].sample {
				e.results = append(e.results, sched.Result{ID: f.items[i].q.id, Tokens: token})
			}
		}
		e.sched.Update(batch.Step, e.results)
		return time.Since(began)
	})
	b.ReportMetric(float64(len(frame)), "bytes")
}

// BenchmarkHost256 measures all of the engine's work in such a step, text and events included.
func BenchmarkHost256(b *testing.B) {
	var frame, answer []byte
	var out, got worker.Output
	choice := []sample.Choice{{Token: 'x'}}
	steps(b, 256, func(e *loop) time.Duration {
		began := time.Now()
		batch := e.sched.Schedule()
		e.pack(batch)
		frame = worker.AppendBatch(frame[:0], &e.batch)
		took := time.Since(began)
		out = worker.Output{Step: batch.Step, Items: out.Items[:0]}
		for i := range batch.Items {
			if batch.Items[i].Sample {
				out.Items = append(out.Items, worker.Out{ID: uint64(batch.Items[i].ID), Tokens: choice})
			}
		}
		answer = worker.AppendOutput(answer[:0], &out)
		began = time.Now()
		if err := worker.DecodeOutput(answer, &got); err != nil {
			b.Fatal(err)
		}
		e.receive(&got)
		e.flush()
		took += time.Since(began)
		for _, q := range e.live { // nobody reads
			q.stream.events = q.stream.events[:0]
		}
		return took
	})
}
