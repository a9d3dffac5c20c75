package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Limits, in milliseconds.
const (
	wakeGate  = 2.0
	crowdGate = 2000.0
	crowd     = 100
)

// pause is how long a function sleeps before it is asked: its memory is measured then, and its grant is out.
const pause = 500 * time.Millisecond

func simulated(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(&all, `---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec:
  template:
    metadata:
      annotations: {rouse.dev/runtime: vllm, rouse.dev/model: sim/llama-8b, rouse.dev/memory: 1Mi, rouse.dev/sleep-after: "0", rouse.dev/gone-after: "0"}
    spec:
      containers: [{image: vllm/vllm-openai, env: [{name: VLLMSIM_FLAGS, value: "--time-scale 0"}]}]
`, name)
	}
	return all.String()
}

func (b *localBench) putSimulator(ctx context.Context) error {
	bin := filepath.Join(b.dir, "bin")
	if err := Build(ctx, filepath.Join(bin, "vllm"), Simulator); err != nil {
		return err
	}
	return os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

const pathText = "/v1/completions"

func completion(model string) []byte {
	return fmt.Appendf(nil, `{"model":%q,"prompt":"hello","max_tokens":4,"temperature":0,"stream":true}`, model)
}

func (b *localBench) wakeOne(ctx context.Context) ([]report.Measurement, error) {
	if err := b.putSimulator(ctx); err != nil {
		return nil, err
	}
	s, err := b.startServer(ctx, simulated("sim"))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	door := s.Door
	body := completion("sim")
	if _, err := door.First(ctx, pathText, body, nil); err != nil {
		return nil, err
	}
	rest := func() error { // a process that has not run for that long is slower
		return sleep(ctx, b.while(pause))
	}
	ask := func() (time.Time, error) { return door.First(ctx, pathText, body, nil) }
	took, err := takeTurns(b.rounds(200), 5, round{func() error { return errors.Join(s.rest(ctx, "sim"), rest()) }, ask}, round{took: ask}, round{rest, ask})
	if err != nil {
		return nil, err
	}
	m := report.Compare(report.Measurement{
		Name: "wake of a sleeper, wake time 0", Unit: "ms",
		What:    "a streamed request over TCP on loopback to rouse up, whose one instance, a simulated vLLM that wakes in no time, sleeps at level 1 under a standing grant, to the stream's first byte",
		Against: "the same request while it is awake",
		Note:    fmt.Sprintf("the same request while it is awake, after the same pause as before the wake: p50 %.2f ms", report.Quantile(took[2], 0.5)),
	}, took[0], took[1])
	return []report.Measurement{m.Gated(m.Rouse.P50 <= wakeGate, "p50 ≤ %g ms", wakeGate)}, nil
}

func (b *localBench) wakeCrowd(ctx context.Context) ([]report.Measurement, error) {
	if err := b.putSimulator(ctx); err != nil {
		return nil, err
	}
	names := make([]string, report.Sized(b.small, crowd, 8))
	for i := range names {
		names[i] = fmt.Sprintf("crowd-%d", i)
	}
	s, err := b.startServer(ctx, simulated(names...))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	return wokenAtOnce(ctx, func(string) *Client { return s.Door }, names, b.rounds(5), "rouse up", func() error {
		for _, name := range names {
			if err := s.rest(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// wokenAtOnce starts functions a few at a time, and then asks all at once, asleep and awake in turns.
func wokenAtOnce(ctx context.Context, of func(name string) *Client, names []string, rounds int, server string, rest func() error) ([]report.Measurement, error) {
	const few = 5 // starts are not measured
	for i := 0; i < len(names); i += few {
		if _, err := streams(ctx, of, names[i:min(i+few, len(names))]); err != nil {
			return nil, err
		}
	}
	var series [2][]float64
	for range rounds {
		if err := errors.Join(rest(), sleep(ctx, pause)); err != nil { // what the sleep set in motion ends
			return nil, err
		}
		for k := range series {
			took, err := streams(ctx, of, names)
			if err != nil {
				return nil, err
			}
			series[k] = append(series[k], took...)
		}
	}
	m := report.Compare(report.Measurement{
		Name: fmt.Sprintf("%d sleepers woken at once", len(names)), Unit: "ms",
		What:    "one streamed request to each of so many functions of " + server + " in the same moment, each with one instance that sleeps at level 1, to the first byte; client, servers and instances share the machine",
		Against: "the same requests in the same moment while all are awake",
	}, series[0], series[1])
	added := m.Rouse.P95 - m.Baseline.P95
	return []report.Measurement{m.Gated(added <= crowdGate, "p95 at most %g ms above the p95 of functions that are awake (it is %.1f)", crowdGate, added)}, nil
}

// streams asks all functions at once, and returns the milliseconds to their first bytes.
func streams(ctx context.Context, of func(name string) *Client, names []string) ([]float64, error) {
	return AtOnce(len(names), func(i int) (time.Duration, error) {
		began := time.Now()
		at, err := of(names[i]).First(ctx, pathText, completion(names[i]), nil)
		return at.Sub(began), err
	})
}
