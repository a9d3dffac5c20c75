// Package bench measures a model file on this machine: `rouse engine bench`.
//
//	ppN      a prompt of N random tokens, forward pass only: llama-bench's ppN
//	tgN      N further tokens of one sequence, forward pass only: llama-bench's tgN
//	tgNxB    the same for B sequences in one batch: llama-batched-bench's tg
//	engine   all but HTTP, B requests at once: the host's work beside the device's (async) or after it (sync)
//	device   the same on a simulated device with a set step time
//
// Results are medians. async and sync, ours and the peer's, take turns: noise affects both.
package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
)

// Config says what to measure.
type Config struct {
	Path    string // pico: the embedded model
	Threads int    `flag:"threads" help:"threads that compute; 0 as in engine serve"`
	Prompt  int    // tokens; 0: 256
	Gen     int    // tokens; 0: 64
	Reps    int    `flag:"reps" least:"1" help:"repetitions; figures are medians"` // 0: 5
	Peer    string `flag:"peer" help:"<folder> of llama-bench and llama-batched-bench (default: the PATH)"`
	NoAsync bool   // forward passes only
}

func (c Config) withDefaults() Config {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.Prompt, 256)
	or(&c.Gen, 64)
	or(&c.Reps, 5)
	or(&c.Threads, max(1, runtime.GOMAXPROCS(0)-1))
	return c
}

func (c Config) validate() error {
	for _, f := range []struct {
		name    string
		v, most int
	}{{"threads", c.Threads, 1024}, {"reps", c.Reps, 1000}} {
		if f.v < 0 || f.v > f.most {
			return fmt.Errorf("--%s is %d: want 1 to %d", f.name, f.v, f.most)
		}
	}
	return nil
}

// Result is a median.
type Result struct {
	Test  string  `json:"test"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Report is of one run.
type Report struct {
	Model    string   `json:"model"`
	Arch     string   `json:"arch"`
	Bytes    int64    `json:"bytes"`
	CPU      string   `json:"cpu"` // the kernels in use
	Threads  int      `json:"threads"`
	Results  []Result `json:"results"`
	PeerNote string   `json:"peer_note,omitempty"` // why there is no comparison

	// Series has each test's repetitions, in order.
	Series map[string][]float64 `json:"-"`
}

func (r *Report) add(test string, value float64, unit string) {
	r.Results = append(r.Results, Result{test, value, unit})
}

// addSeries adds a median.
func (r *Report) addSeries(test string, values []float64, unit string) {
	if len(values) == 0 {
		return
	}
	if r.Series == nil {
		r.Series = map[string][]float64{}
	}
	r.Series[test] = values
	r.add(test, median(values), unit)
}

// Value returns the result of a test.
func (r *Report) Value(test string) (float64, bool) {
	for _, x := range r.Results {
		if x.Test == test {
			return x.Value, true
		}
	}
	return 0, false
}

// Run calls progress, which may be nil, at each step.
func Run(ctx context.Context, cfg Config, progress func(string)) (*Report, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if progress == nil {
		progress = func(string) {}
	}
	r := &Report{}
	if err := runForward(ctx, cfg, r, progress); err != nil {
		return nil, err
	}
	if !cfg.NoAsync {
		if err := runEngine(ctx, cfg, r, progress); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
