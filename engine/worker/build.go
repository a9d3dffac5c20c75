package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/pico"
)

// Build makes every kind of model. log may be nil.
func Build(log *slog.Logger) Builder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return Builder{
		Model: func(_ context.Context, l Load) (infer.Inferencer, error) {
			switch l.Device {
			case "", "cpu":
				return buildCPU(l, log)
			case "sim":
				return infer.ParseSimulated(l.Options)
			}
			return nil, fmt.Errorf("this worker computes on a %q, and a %q is wanted", "cpu", l.Device)
		},
		Adapter: OpenAdapter,
	}
}

func buildCPU(l Load, log *slog.Logger) (infer.Inferencer, error) {
	cfg := cpu.Config{
		Threads: l.Threads, Context: l.Context, Sequences: l.Sequences, CacheBytes: l.CacheBytes, TileDir: l.TileDir, TileLimit: l.TileLimit, Projector: l.Projector, Log: log,
	}
	if l.Of > 1 {
		if l.Memory < firstFD {
			return nil, fmt.Errorf("rank %d of %d has no memory to share with the others: its file descriptor is missing", l.Rank, l.Of)
		}
		cfg.Shard = cpu.Shard{Rank: l.Rank, Of: l.Of, Memory: os.NewFile(uintptr(l.Memory), "ranks")}
	}
	if l.Model != pico.Name {
		return cpu.Open(l.Model, cfg)
	}
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		return nil, err
	}
	r, err := cpu.New(f, cfg)
	if err != nil {
		return nil, err
	}
	return r, nil
}
