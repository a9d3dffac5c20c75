package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func (b *localBench) startEngine(ctx context.Context) (*Engine, error) {
	return StartEngine(ctx, b.rouse, api.Endpoint("unix:"+filepath.Join(b.dir, "e.sock")), "--model", "pico")
}

func (b *localBench) startServer(ctx context.Context, manifest string) (*Up, error) {
	return StartUp(ctx, UpConfig{Rouse: b.rouse, Dir: b.dir, Manifest: manifest, Args: []string{"--no-gpu"}})
}

type round struct {
	before func() error              // not measured; may be nil
	took   func() (time.Time, error) // when what is measured has ended
}

// takeTurns returns the milliseconds of each side. The first warm rounds do not count.
func takeTurns(rounds, warm int, sides ...round) ([][]float64, error) {
	series := make([][]float64, len(sides))
	for i := range rounds + warm {
		for k, s := range sides {
			if s.before != nil {
				if err := s.before(); err != nil {
					return nil, err
				}
			}
			began := time.Now()
			at, err := s.took()
			if err != nil {
				return nil, err
			}
			if i >= warm {
				series[k] = append(series[k], report.Millis(at.Sub(began)))
			}
		}
	}
	return series, nil
}
