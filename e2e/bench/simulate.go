// The benchmark simulate replays generated traces against all policies, and says whether the gates hold:
//
//	go run ./e2e/bench simulate -o docs/bench/simulate.json
//
// It measures:
//
//  1. GPU-hours at equal p95 time to first token, on the generator's default trace (12 functions, 24 h), with a GPU for
//     each pod that a policy may want. The knob of each policy is set to hold the target with the fewest GPU-hours. For
//     several targets and seeds.
//  2. The share of hot starts of 12 models on 4 GPUs, on the same Zipf traces, beside the random placement of dual pods
//     in the same run, with several limits on its sleepers.
//  3. The same for the other loads of the generator, without a gate.
//  4. Times to first token and GPU-hours on harsh days (harsh.go), each policy with its defaults: at most the p95 of
//     stock Knative.
//  5. The same on ordinary days beside the newest peers (peers.go), without a gate.
//  6. How long a simulation takes.
//
// Everything but 6 is virtual time, and the same on every machine.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/simulate"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// localBench is one run of this program.
type simulations struct {
	seeds int
	day   time.Duration
	small bool
}

func runSimulate(ctx context.Context, r *report.Run) error {
	b := simulations{seeds: report.Sized(r.Small, 3, 1), day: report.Sized(r.Small, 24*time.Hour, time.Hour), small: r.Small}
	return r.Parts(ctx, report.Part{Name: "hours", Measure: b.hours}, report.Part{Name: "hot", Measure: b.hot}, report.Part{Name: "harsh", Measure: b.harsh},
		report.Part{Name: "peers", Measure: b.peers}, report.Part{Name: "speed", Measure: b.speed})
}

// each runs do for every seed, as many at once as there are processors.
func (b *simulations) each(do func(k int, seed uint64) error) error {
	errs := make([]error, b.seeds)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0)) // one for each that runs
	var all sync.WaitGroup
	for k := range b.seeds {
		all.Go(func() {
			slots <- struct{}{}
			errs[k] = do(k, uint64(k+1))
			<-slots
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// length of a day: with -small an hour, of an office half a day, for it is empty at night.
func (b *simulations) length(load simulate.Load) time.Duration {
	if load == simulate.Office {
		return max(b.day, 12*time.Hour)
	}
	return b.day
}

// trace makes a day of 12 functions.
func (b *simulations) trace(load simulate.Load, seed uint64) (simulate.Trace, error) {
	return simulate.Generate(simulate.Shape{Length: b.day, Load: load, Seed: seed})
}

// targets are those for which GPU-hours are compared.
var targets = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}

// hours is 1.
func (b *simulations) hours(ctx context.Context) ([]report.Measurement, error) {
	const gpus = 16 // no function waits for one: more change nothing
	var ms []report.Measurement
	for _, target := range targets {
		fmt.Fprintln(os.Stderr, "searching for", target)
		found := make([][]simulate.Result, b.seeds)
		err := b.each(func(k int, seed uint64) error {
			t, err := b.trace(simulate.Mix, seed)
			if err != nil {
				return err
			}
			found[k] = make([]simulate.Result, len(simulate.Names))
			for j, name := range simulate.Names {
				if found[k][j], err = simulate.Search(ctx, simulate.Config{Devices: gpus, Seed: seed}, t, b.day, simulate.Policy{Name: name}, target); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		series := func(j int) []float64 {
			var s []float64
			for _, f := range found {
				s = append(s, f[j].GPUHours)
			}
			return s
		}
		met := true
		worst := 0.0
		for _, f := range found {
			worst = max(worst, f[0].GPUHours/f[1].GPUHours)
			for _, r := range f {
				met = met && r.TargetMet
			}
		}
		m := report.Compare(report.Measurement{
			Name: fmt.Sprintf("GPU-hours at p95 of %s", target), Unit: "h",
			What:    fmt.Sprintf("GPU-hours of a day of 12 functions on %d GPUs, how long what is idle stays set so that the p95 time to first token is at most %s with the fewest; one value for each of %d traces", gpus, target, b.seeds),
			Against: "stock Knative's rule on the same traces, its stable window and retention set likewise",
		}, series(0), series(1)).Gated(met && worst <= 0.6, "on each trace at least 40 %% fewer, and all hold the target")
		m.Note = fmt.Sprintf("at worst %.1f %% fewer; keepalive %.1f h, random %.1f h; of the first trace: %s",
			100*(1-worst), report.Quantile(series(2), 0.5), report.Quantile(series(3), 0.5), said(found[0]))
		ms = append(ms, m)
	}
	return ms, nil
}

// said describes the chosen knobs.
func said(rs []simulate.Result) (s string) {
	for k, r := range rs {
		if k > 0 {
			s += "; "
		}
		s += fmt.Sprintf("%s keeps %gs", r.Name, r.KeepSeconds)
		if r.KeepSlowSeconds != 0 {
			s += fmt.Sprintf(", what wakes slowly %gs", r.KeepSlowSeconds)
		}
		s += fmt.Sprintf(", p95 %.0f ms", r.P95)
	}
	return s
}

// hot is 2 and 3.
func (b *simulations) hot(ctx context.Context) ([]report.Measurement, error) {
	var ms []report.Measurement
	for _, load := range simulate.Loads {
		limits := []int{2, 3, 6, 12}
		if load != simulate.Mix {
			limits = limits[:1]
		}
		for _, limit := range limits {
			ours, theirs := make([]float64, b.seeds), make([]float64, b.seeds)
			rs := make([][2]simulate.Result, b.seeds)
			err := b.each(func(k int, seed uint64) error {
				length := b.length(load)
				t, err := simulate.Generate(simulate.Shape{Length: length, Load: load, Seed: seed})
				if err != nil {
					return err
				}
				for j, p := range []simulate.Policy{{Name: "rouse"}, {Name: "random", SleeperLimit: limit}} {
					if rs[k][j], err = simulate.Run(ctx, simulate.Config{Devices: 4, Seed: seed}, t, length, p); err != nil {
						return err
					}
				}
				ours[k], theirs[k] = 100*rs[k][0].HotShare, 100*rs[k][1].HotShare
				return nil
			})
			if err != nil {
				return nil, err
			}
			m := report.Compare(report.Measurement{
				Name: fmt.Sprintf("hot starts, %s, limit %d", load, limit), Unit: "%",
				What:    fmt.Sprintf("share of rises that wake a sleeper: 12 models on 4 GPUs, a day of the load %s, requests spread by Zipf; one value for each of %d traces", load, b.seeds),
				Against: fmt.Sprintf("random placement of dual pods on the same traces, at most %d sleepers on a GPU", limit),
			}, ours, theirs)
			r := rs[0]
			m.Note = fmt.Sprintf("of the first trace: %d of %d rises woke a sleeper, p95 %.0f ms, %d refused; random %d of %d, p95 %.0f ms, %d refused",
				r[0].Wakes, r[0].Wakes+r[0].Starts, r[0].P95, r[0].Refused, r[1].Wakes, r[1].Wakes+r[1].Starts, r[1].P95, r[1].Refused)
			if load == simulate.Mix {
				m = m.Gated(m.Rouse.Min >= 95, "at least 95 %% on each trace")
			}
			ms = append(ms, m)
		}
	}
	return ms, nil
}

// speed is 6.
func (b *simulations) speed(ctx context.Context) ([]report.Measurement, error) {
	var ms []report.Measurement
	for _, s := range []struct{ functions, gpus, nodes int }{{12, 4, 1}, {100, 40, 5}} {
		t, err := simulate.Generate(simulate.Shape{Functions: s.functions, Length: b.day, Seed: 1})
		if err != nil {
			return nil, err
		}
		for _, name := range simulate.Names {
			start := time.Now()
			if _, err := simulate.Run(ctx, simulate.Config{Devices: s.gpus, Nodes: s.nodes}, t, b.day, simulate.Policy{Name: name}); err != nil {
				return nil, err
			}
			took := report.Summarise([]float64{time.Since(start).Seconds()})
			ms = append(ms, report.Measurement{
				Name: fmt.Sprintf("a day of %d functions, %s", s.functions, name), Unit: "s", N: 1, Rouse: took,
				What: fmt.Sprintf("one simulation of %d requests for %d functions on %d GPUs of %d nodes under the policy %s", len(t), s.functions, s.gpus, s.nodes, name),
			})
		}
	}
	return ms, nil
}
