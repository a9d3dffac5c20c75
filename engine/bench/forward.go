package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/kernel"
)

// runner measures forward passes.
type runner struct {
	inf   infer.Inferencer
	vocab int
	size  int // positions in a block
	batch infer.Batch
	next  []int32
	rng   *rand.Rand
}

func newRunner(inf infer.Inferencer) *runner {
	_, size := inf.Blocks()
	return &runner{inf: inf, vocab: inf.Config().Vocab, size: size, rng: rand.New(rand.NewPCG(1, 2))}
}

// items assigns blocks to n sequences of up to length positions.
func (r *runner) items(n, length int) error {
	each := (length + r.size - 1) / r.size
	if count, _ := r.inf.Blocks(); n*each > count {
		return fmt.Errorf("%d sequences of %d tokens need %d blocks of cache, there are %d: ask for less", n, length, n*each, count)
	}
	if c := r.inf.Config().Context; length > c {
		return fmt.Errorf("%d tokens, but the model's context is %d: ask for less", length, c)
	}
	r.batch.Items = make([]infer.Item, n)
	r.next = make([]int32, n)
	for i := range r.batch.Items {
		for b := range each {
			r.batch.Items[i].Blocks = append(r.batch.Items[i].Blocks, int32(i*each+b))
		}
	}
	return nil
}

// prompt computes n random tokens of each sequence, in parts of 512 like llama-bench.
func (r *runner) prompt(ctx context.Context, n int) (time.Duration, error) {
	start := time.Now()
	for i := range r.batch.Items {
		one := infer.Batch{Items: r.batch.Items[i : i+1]}
		for at := 0; at < n; {
			k := min(n-at, 512)
			it := &one.Items[0]
			it.Pos, it.Tokens, it.Want = at, it.Tokens[:0], infer.None
			for range k {
				it.Tokens = append(it.Tokens, int32(r.rng.IntN(r.vocab)))
			}
			if at += k; at == n {
				it.Want = infer.Last
			}
			out, err := r.inf.Forward(ctx, &one)
			if err != nil {
				return 0, err
			}
			if at == n {
				r.next[i] = int32(kernel.ArgMax(out.Logits[0]))
			}
		}
	}
	return time.Since(start), nil
}

// generate computes n further tokens of all sequences, greedily, from position at.
func (r *runner) generate(ctx context.Context, at, n int) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		for j := range r.batch.Items {
			it := &r.batch.Items[j]
			it.Pos, it.Want, it.Tokens = at+i, infer.Last, append(it.Tokens[:0], r.next[j])
		}
		out, err := r.inf.Forward(ctx, &r.batch)
		if err != nil {
			return 0, err
		}
		for j := range r.batch.Items {
			r.next[j] = int32(kernel.ArgMax(out.Logits[j]))
		}
	}
	return time.Since(start), nil
}

// series is a test's results, ours and the peer's.
type series struct{ ours, theirs []float64 }

func runForward(ctx context.Context, cfg Config, rep *Report, progress func(string)) error {
	inf, size, err := open(cfg)
	if err != nil {
		return err
	}
	defer inf.Close()
	features, err := kernel.Features()
	if err != nil {
		return err
	}
	rep.Model, rep.Bytes, rep.Arch, rep.CPU, rep.Threads = cfg.Path, size, inf.Config().Arch, features, cfg.Threads
	p, note := findPeer(cfg.Peer, cfg.Path, rep.Threads)
	if cfg.Path == shipped {
		p.bench, p.batched, note = "", "", ""
	}
	rep.PeerNote = note
	pp, tg, tgb := fmt.Sprintf("pp%d", cfg.Prompt), fmt.Sprintf("tg%d", cfg.Gen), fmt.Sprintf("tg%dxB%d", cfg.Gen, cfg.Batch)
	prompts := min(32, cfg.Prompt) // before batched generation
	all := map[string]*series{pp: {}, tg: {}, tgb: {}}
	for rep := range cfg.Reps + 1 { // the first is the warm-up
		progress(fmt.Sprintf("forward pass, %d of %d", rep, cfg.Reps))
		r := newRunner(inf)
		if err := r.once(ctx, cfg, prompts, rep > 0, all[pp], all[tg], all[tgb]); err != nil {
			return err
		}
		if rep == 0 {
			continue
		}
		if err := p.once(ctx, cfg, prompts, all[pp], all[tg], all[tgb]); err != nil {
			return err
		}
	}
	for _, name := range []string{pp, tg, tgb} {
		rep.addSeries(name, all[name].ours, "tokens/s")
	}
	for _, name := range []string{pp, tg, tgb} {
		if theirs := all[name].theirs; len(theirs) > 0 {
			rep.addSeries(name+"_llama.cpp", theirs, "tokens/s")
			rep.add(name+"_ratio", median(all[name].ours)/median(theirs), "x")
		}
	}
	return nil
}

// once measures each test once.
func (r *runner) once(ctx context.Context, cfg Config, prompts int, keep bool, pp, tg, tgb *series) error {
	if err := r.items(1, max(cfg.Prompt, cfg.Gen+1)); err != nil {
		return err
	}
	record := func(s *series, tokens int, d time.Duration) {
		if keep {
			s.ours = append(s.ours, float64(tokens)/d.Seconds())
		}
	}
	d, err := r.prompt(ctx, cfg.Prompt)
	if err != nil {
		return err
	}
	record(pp, cfg.Prompt, d)
	if _, err := r.prompt(ctx, 1); err != nil {
		return err
	}
	if d, err = r.generate(ctx, 1, cfg.Gen); err != nil {
		return err
	}
	record(tg, cfg.Gen, d)
	if err := r.items(cfg.Batch, prompts+cfg.Gen); err != nil {
		return err
	}
	if _, err := r.prompt(ctx, prompts); err != nil {
		return err
	}
	if d, err = r.generate(ctx, prompts, cfg.Gen); err != nil {
		return err
	}
	record(tgb, cfg.Gen*cfg.Batch, d)
	return nil
}

func (p peer) once(ctx context.Context, cfg Config, prompts int, pp, tg, tgb *series) error {
	if p.bench != "" {
		v, err := p.single(ctx, cfg.Prompt, 0)
		if err != nil {
			return err
		}
		pp.theirs = append(pp.theirs, v)
		if v, err = p.single(ctx, 0, cfg.Gen); err != nil {
			return err
		}
		tg.theirs = append(tg.theirs, v)
	}
	if p.batched != "" {
		v, err := p.together(ctx, prompts, cfg.Gen, cfg.Batch)
		if err != nil {
			return err
		}
		tgb.theirs = append(tgb.theirs, v)
	}
	return nil
}

// runnerConfig returns the cache size that the tests need.
func runnerConfig(cfg Config) cpu.Config {
	return cpu.Config{Threads: cfg.Threads, Sequences: cfg.Batch + 1, Context: max(cfg.Prompt, cfg.Gen+64) + 16, CacheBytes: 4 << 30}
}
