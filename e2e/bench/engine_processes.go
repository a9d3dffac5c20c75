package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func startServer(ctx context.Context, o engineOptions, model string, args ...string) (*Engine, error) {
	return StartEngine(ctx, o.rouse, "", append([]string{"--model", model}, args...)...)
}

func (s *Engine) token(ctx context.Context) error {
	return s.Post(ctx, "/v1/completions", map[string]any{"prompt": "a", "max_tokens": 1})
}

// processes measures whole servers: start, memory, sleep and wake.
func processes(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	if o.selects("start") {
		if err := starts(ctx, o, add); err != nil {
			return err
		}
	}
	if o.selects("sleep") {
		return sleeps(ctx, o, add)
	}
	return nil
}

func starts(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	var took []float64
	for range o.reps + 1 {
		s, err := startServer(ctx, o, "pico")
		if err != nil {
			return err
		}
		err = s.token(ctx)
		d := time.Since(s.Began)
		s.Stop()
		if err != nil {
			return err
		}
		took = append(took, report.Millis(d))
	}
	m := report.Measurement{Name: "start to first token, pico", What: "from the exec of `rouse engine serve` to the first token over HTTP", Unit: "ms", N: o.reps, Rouse: report.Summarise(took[1:])}
	add(m.Gated(m.Rouse.P50 <= 300, "at most 300 ms"))
	return nil
}

// nap is one sleep: the milliseconds of its wake, and the resident megabytes before and after that.
type nap struct{ wake, asleep, awake float64 }

// nap puts the server to sleep, wakes it and asks for a token.
func (s *Engine) nap(ctx context.Context, level int) (n nap, err error) {
	if err := s.Post(ctx, fmt.Sprintf("/sleep?level=%d", level), nil); err != nil {
		return n, err
	}
	if n.asleep, err = s.Resident(); err != nil {
		return n, err
	}
	began := time.Now()
	if err := s.Post(ctx, "/wake_up", nil); err != nil {
		return n, err
	}
	n.wake = report.Millis(time.Since(began))
	if err := s.token(ctx); err != nil {
		return n, err
	}
	n.awake, err = s.Resident()
	return n, err
}

// sleeps measures the 0.5 B model's sleep at level 1: memory, and the wake to the first step (which /wake_up
// waits for), with the files in the page cache.
func sleeps(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	i := 0
	all := subjects()
	for all[i].name != "0.5B Q8_0" {
		i++
	}
	path, err := all[i].model(o)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	s, err := startServer(ctx, o, path, "--context", "4096", "--max-seqs", "8")
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.token(ctx); err != nil {
		return err
	}
	for _, level := range []int{1, 2} {
		var wakes, asleep, awake []float64
		for range o.reps + 1 {
			n, err := s.nap(ctx, level)
			if err != nil {
				return err
			}
			wakes, asleep, awake = append(wakes, n.wake), append(asleep, n.asleep), append(awake, n.awake)
		}
		name := fmt.Sprintf("sleep level %d, 0.5B Q8_0, ", level)
		wake := report.Measurement{Name: name + "wake", What: "POST /wake_up to its answer, which the first step's token makes; files in the page cache", Unit: "ms", N: o.reps, Rouse: report.Summarise(wakes[1:])}
		rest := report.Measurement{Name: name + "memory asleep", What: "resident memory of the server and its worker", Unit: "MB", N: o.reps, Rouse: report.Summarise(asleep[1:])}
		up := report.Measurement{Name: name + "memory awake", What: fmt.Sprintf("the same, awake again after one token; the file has %.0f MB", float64(info.Size())/1e6), Unit: "MB", N: o.reps, Rouse: report.Summarise(awake[1:])}
		if level == 1 {
			wake = wake.Gated(wake.Rouse.P50 <= 150, "at most 150 ms")
			rest = rest.Gated(rest.Rouse.P50 <= 64, "at most 64 MB")
			most := 1.1*float64(info.Size())/1e6 + 64
			up = up.Gated(up.Rouse.P50 <= most, "at most 1.1 x file + 64 MB = %.0f MB, and the cache in use", most)
		}
		add(wake)
		add(rest)
		add(up)
	}
	return nil
}
