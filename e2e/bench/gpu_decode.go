package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	enginebench "github.com/rouse-dev/rouse/engine/bench"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/worker"
)

const mostAtOnce = 128

func (b *gpuBench) batches() []int {
	if b.small {
		return []int{1, 16, mostAtOnce}
	}
	return []int{1, 2, 4, 8, 16, 32, 64, mostAtOnce}
}

func (b *gpuBench) decode(ctx context.Context, p *gpuPart) error {
	if err := b.torch(); err != nil {
		return err
	}
	weights := b.weights
	if !b.small {
		weights = min(weights, float64(b.facts.Free)/2)
	}
	load := enginebench.Load{Prompt: 16, Gen: 64}
	reps := 3
	if b.small {
		load.Gen, reps = 4, 1
	}
	for _, sync := range []bool{true, false} {
		if err := p.goOn(ctx, b.decodeOne(ctx, p, weights, load, reps, sync)); err != nil {
			return err
		}
	}
	return nil
}

func (b *gpuBench) decodeOne(ctx context.Context, p *gpuPart, weights float64, load enginebench.Load, reps int, sync bool) (err error) {
	way := "async"
	if sync {
		way = "sync"
	}
	s, err := b.open(ctx, worker.Load{Model: fmt.Sprintf("random:%g", weights), Sequences: mostAtOnce, Context: load.Prompt + load.Gen + 16, Threads: 1},
		engine.Config{Seats: mostAtOnce, Budget: 2 * mostAtOnce, Sync: sync, NoPrefix: true}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	width := b.width()
	total := weightsOf(s.model, width)
	if sync {
		p.note("%.2f GB of weights in %d layers, %s", total/1e9, s.model.Layers, s.attention())
	}
	for _, n := range b.batches() {
		load.N, load.Sync = n, sync
		speed, err := drive(ctx, s, load, reps)
		if err != nil { // a size that does not fit, or that a kernel does not take
			if err := p.goOn(ctx, fmt.Errorf("%d at once, %s: %w: %s", n, way, err, lastLine(s.said.log()))); err != nil {
				return err
			}
			continue
		}
		// A step reads the weights once, and on average half of what each sequence has at the end.
		step := total + float64(n)*keysOf(s.model, width)*(float64(load.Prompt)+float64(load.Gen)/2)
		name := fmt.Sprintf("%d at once, %s", n, way)
		p.beside(name, "tokens/s", speed.PerSecond(), float64(n)*b.facts.Rates.Device/step, "by the memory's bandwidth")
		p.beside(name+": a token of each", "ms", 1e3*speed.Elapsed.Seconds()/float64(max(1, speed.Steps)), 1e3*step/b.facts.Rates.Device, "by the memory's bandwidth")
		p.add(name+": device idle", "%", max(0, 100*(1-speed.Busy.Seconds()/speed.Elapsed.Seconds())))
	}
	return nil
}

// drive is the median of runs after one that captures the graph of its size.
func drive(ctx context.Context, s *gpuSubject, load enginebench.Load, reps int) (enginebench.Speed, error) {
	var all []enginebench.Speed
	for i := range reps + 1 {
		speed, err := enginebench.Drive(ctx, s.Engine, load)
		if err != nil {
			return speed, err
		}
		if i > 0 {
			all = append(all, speed)
		}
	}
	slices.SortFunc(all, func(x, y enginebench.Speed) int { return int(x.PerSecond() - y.PerSecond()) })
	return all[len(all)/2], nil
}
