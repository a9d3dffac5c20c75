package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func (o engineOptions) start(ctx context.Context, model string, args ...string) (*Engine, error) {
	return StartEngine(ctx, o.rouse, "", append([]string{"--model", model}, args...)...)
}

func (s *Engine) token(ctx context.Context) error {
	return s.Post(ctx, pathText, map[string]any{"prompt": "a", "max_tokens": 1})
}

func (o engineOptions) starts(ctx context.Context) ([]report.Measurement, error) {
	took, err := takeTurns(o.reps, 1, round{took: func() (time.Time, error) {
		s, err := o.start(ctx, "pico")
		if err != nil {
			return time.Time{}, err
		}
		defer s.Stop()
		err = s.token(ctx)
		return time.Now(), err
	}})
	if err != nil {
		return nil, err
	}
	m := report.Of(report.Measurement{Name: "start to first token, pico", What: "from the exec of `rouse engine serve` to the first token over HTTP", Unit: "ms"}, took[0]...)
	return []report.Measurement{m.Gated(m.Rouse.P50 <= 300, "at most 300 ms")}, nil
}

// naps has the milliseconds of each wake, and the resident megabytes before and after.
type naps struct{ wake, asleep, awake []float64 }

func (n *naps) nap(ctx context.Context, s *Engine, level int) error {
	if err := s.Post(ctx, fmt.Sprintf("/sleep?level=%d", level), nil); err != nil {
		return err
	}
	asleep, err := s.Resident()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.Post(ctx, "/wake_up", nil); err != nil {
		return err
	}
	n.wake, n.asleep = append(n.wake, report.Millis(time.Since(began))), append(n.asleep, asleep)
	if err := s.token(ctx); err != nil {
		return err
	}
	awake, err := s.Resident()
	n.awake = append(n.awake, awake)
	return err
}

func (o engineOptions) sleeps(ctx context.Context) (ms []report.Measurement, err error) {
	path, err := half.model(o)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	s, err := o.start(ctx, path, "--context", "4096", "--max-seqs", "8")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	if err := s.token(ctx); err != nil {
		return nil, err
	}
	for _, level := range []int{1, 2} {
		var n naps
		for range o.reps + 1 {
			if err := n.nap(ctx, s, level); err != nil {
				return nil, err
			}
		}
		of := func(name, what, unit string, series []float64) report.Measurement {
			return report.Of(report.Measurement{Name: fmt.Sprintf("sleep level %d, %s, %s", level, half.name, name), What: what, Unit: unit}, series[1:]...)
		}
		wake := of("wake", "POST /wake_up to its answer, which the first step's token makes; files in the page cache", "ms", n.wake)
		rest := of("memory asleep", "resident memory of the server and its worker", "MB", n.asleep)
		up := of("memory awake", fmt.Sprintf("the same, awake again after one token; the file has %.0f MB", float64(info.Size())/1e6), "MB", n.awake)
		if level == 1 {
			wake = wake.Gated(wake.Rouse.P50 <= 150, "at most 150 ms")
			rest = rest.Gated(rest.Rouse.P50 <= 64, "at most 64 MB")
			most := 1.1*float64(info.Size())/1e6 + 64
			up = up.Gated(up.Rouse.P50 <= most, "at most 1.1 x file + 64 MB = %.0f MB, and the cache in use", most)
		}
		ms = append(ms, wake, rest, up)
	}
	return ms, nil
}
