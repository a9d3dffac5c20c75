package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/infer/sim"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/wire"
)

// byteVocabulary is a tokenizer of the 256 bytes and two ends.
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

// busy is an engine with n sequences that decode, in place of Run.
func busy(b *testing.B, n int) *Engine {
	d, err := sim.New(sim.Config{Context: 1 << 20, Blocks: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(d, byteVocabulary(b), Config{Seats: n, Budget: 2 * n})
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		if _, err := e.Add(b.Context(), Request{Prompt: slices.Repeat([]int32{65}, 20), IgnoreEnd: true}); err != nil {
			b.Fatal(err)
		}
	}
	e.deliver(context.Background())
	return e
}

// report adds the median and the best of some times, in µs.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "µs/p50")
	b.ReportMetric(float64(times[0].Nanoseconds())/1e3, "µs/min")
}

// BenchmarkSchedule256 is the schedule, the encoding and the update of a step of 256 sequences.
func BenchmarkSchedule256(b *testing.B) {
	e := busy(b, 256)
	var frame []byte
	var times []time.Duration
	token := []int32{'x'}
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		batch := e.sched.Schedule()
		e.pack(batch)
		frame = wire.AppendBatch(frame[:0], &e.batch)
		f := e.land()
		e.results = e.results[:0]
		for i := range f.items {
			if f.items[i].sample {
				e.results = append(e.results, sched.Result{ID: f.items[i].q.id, Tokens: token})
			}
		}
		e.sched.Update(batch.Step, e.results)
		times = append(times, time.Since(began))
	}
	report(b, times)
	b.ReportMetric(float64(len(frame)), "bytes")
}

// BenchmarkHost256 is all that the engine does in such a step: text and events too.
func BenchmarkHost256(b *testing.B) {
	e := busy(b, 256)
	var frame, answer []byte
	var out, got wire.Output
	var times []time.Duration
	choice := []sample.Choice{{Token: 'x'}}
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		batch := e.sched.Schedule()
		e.pack(batch)
		frame = wire.AppendBatch(frame[:0], &e.batch)
		took := time.Since(began)
		out = wire.Output{Step: batch.Step, Items: out.Items[:0]}
		for i := range batch.Items {
			if batch.Items[i].Sample {
				out.Items = append(out.Items, wire.Out{ID: uint64(batch.Items[i].ID), Tokens: choice})
			}
		}
		answer = wire.AppendOutput(answer[:0], &out)
		began = time.Now()
		if err := wire.DecodeOutput(answer, &got); err != nil {
			b.Fatal(err)
		}
		e.receive(&got)
		e.flush()
		times = append(times, took+time.Since(began))
		for _, q := range e.live { // nobody reads
			q.stream.events = q.stream.events[:0]
		}
	}
	report(b, times)
}
