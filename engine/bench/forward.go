package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

const shipped = pico.Name

func open(path string) (f *gguf.File, size int64, err error) {
	if path == shipped {
		f, err = gguf.Parse(pico.GGUF())
		return f, int64(len(pico.GGUF())), err
	}
	if size, err = ggufname.Size(path); err == nil {
		f, err = gguf.Open(path)
	}
	return f, size, err
}

// load opens a model in this process; the limits are the tests'.
func load(cfg Config) (*cpu.Runner, int64, error) {
	c := cpu.Config{Threads: cfg.Threads, Sequences: batch + 1, Context: max(cfg.Prompt, cfg.Gen+64) + 16, CacheBytes: 4 << 30}
	f, size, err := open(cfg.Path)
	if err != nil {
		return nil, 0, err
	}
	if cfg.Path == shipped {
		r, err := cpu.New(f, c)
		if err != nil {
			err = errors.Join(err, f.Close())
		}
		return r, size, err
	}
	r, err := cpu.Open(cfg.Path, c)
	return r, size, errors.Join(err, f.Close())
}

// batch is tgNxB's B.
const batch = 16

// test is prompts of n sequences, then gen further tokens of each. Without gen the prompt is measured.
type test struct {
	name           string
	n, prompt, gen int
	ours, theirs   []float64 // per second
}

func runForward(ctx context.Context, cfg Config, rep *Report, progress func(string)) error {
	inf, size, err := load(cfg)
	if err != nil {
		return err
	}
	defer inf.Close()
	features, err := kernel.Features()
	if err != nil {
		return err
	}
	rep.Model, rep.Bytes, rep.Arch, rep.CPU, rep.Threads = cfg.Path, size, inf.Config().Arch, features, cfg.Threads
	var p peer
	if cfg.Path != shipped {
		p, rep.PeerNote = findPeer(cfg.Peer, cfg.Path, rep.Threads)
	}
	tests := []test{
		{name: fmt.Sprintf("pp%d", cfg.Prompt), n: 1, prompt: cfg.Prompt},
		{name: fmt.Sprintf("tg%d", cfg.Gen), n: 1, prompt: 1, gen: cfg.Gen},
		{name: fmt.Sprintf("tg%dxB%d", cfg.Gen, batch), n: batch, prompt: min(32, cfg.Prompt), gen: cfg.Gen},
	}
	for rep := range cfg.Reps + 1 { // the first is the warm-up
		progress(fmt.Sprintf("forward pass, %d of %d", rep, cfg.Reps))
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range tests {
			t := &tests[i]
			ours, err := t.run(ctx, inf, rng)
			if err != nil {
				return err
			}
			if rep == 0 {
				continue
			}
			t.ours = append(t.ours, ours)
			theirs, err := p.run(ctx, t)
			if err != nil {
				return err
			}
			if theirs > 0 {
				t.theirs = append(t.theirs, theirs)
			}
		}
	}
	for _, t := range tests {
		rep.addSeries(t.name, t.ours, "tokens/s")
	}
	for _, t := range tests {
		if len(t.theirs) > 0 {
			rep.addSeries(t.name+"_llama.cpp", t.theirs, "tokens/s")
			rep.add(t.name+"_ratio", median(t.ours)/median(t.theirs), "x")
		}
	}
	return nil
}

// run returns tokens per second.
func (t *test) run(ctx context.Context, inf infer.Inferencer, rng *rand.Rand) (float64, error) {
	count, size := inf.Blocks()
	c, length := inf.Config(), t.prompt+t.gen
	each := (length + size - 1) / size
	switch {
	case t.n*each > count:
		return 0, fmt.Errorf("%d sequences of %d tokens need %d blocks of cache, there are %d: ask for less", t.n, length, t.n*each, count)
	case length > c.Context:
		return 0, fmt.Errorf("%d tokens, but the model's context is %d: ask for less", length, c.Context)
	}
	b := infer.Batch{Items: make([]infer.Item, t.n)}
	next := make([]int32, t.n)
	start := time.Now()
	for i := range b.Items {
		it := &b.Items[i]
		it.State = int32(i)
		for k := range each {
			it.Blocks = append(it.Blocks, int32(i*each+k))
		}
		for at := 0; at < t.prompt; at += len(it.Tokens) { // in parts of 512 like llama-bench
			it.Pos, it.Tokens, it.Want = at, make([]int32, min(t.prompt-at, 512)), infer.None
			for k := range it.Tokens {
				it.Tokens[k] = int32(rng.IntN(c.Vocab))
			}
			if at+len(it.Tokens) == t.prompt {
				it.Want = infer.Last
			}
			out, err := inf.Forward(ctx, &infer.Batch{Items: b.Items[i : i+1]})
			if err != nil {
				return 0, err
			}
			if it.Want == infer.Last {
				next[i] = int32(kernel.ArgMax(out.Logits[0]))
			}
		}
	}
	if t.gen == 0 {
		return float64(t.prompt) / time.Since(start).Seconds(), nil
	}
	start = time.Now()
	for k := range t.gen {
		for i := range b.Items {
			it := &b.Items[i]
			it.Pos, it.Tokens = t.prompt+k, append(it.Tokens[:0], next[i])
		}
		out, err := inf.Forward(ctx, &b)
		if err != nil {
			return 0, err
		}
		for i := range next {
			next[i] = int32(kernel.ArgMax(out.Logits[i]))
		}
	}
	return float64(t.n*t.gen) / time.Since(start).Seconds(), nil
}
