package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Limits, in milliseconds.
const (
	wakeGateP50  = 5.0
	wakeGateP99  = 20.0
	crowdGateP95 = 2000.0
)

// noTime makes the simulated model server load, sleep and wake in no time, so that only the rest is measured.
const noTime = "VLLMSIM_FLAGS=--time-scale 0"

const (
	simulator = "dev.local/rouse-vllmsim:v1"
	waker     = "bench-wake"
	wakeStock = "bench-wake-stock"
)

// wakers are a function whose model server is the simulator, and the same server as a
// stock function runs it.
var wakers = map[string][]string{
	waker: append([]string{"--image", simulator, "--scale-init", "0", "--env", noTime}, revision("rouse.dev/sleep-after=0", "rouse.dev/gone-after=0")...),
	wakeStock: {"--image", simulator, "--env", noTime, "--scale-window", "6s", "--cmd", "/usr/local/bin/vllm",
		"--arg", "serve", "--arg", "sim/llama-8b", "--arg=--served-model-name", "--arg", wakeStock, "--arg=--host", "--arg", "0.0.0.0", "--arg=--port", "--arg", "8080"},
}

// revision are the annotations of a function with the simulator.
func revision(more ...string) (args []string) {
	for _, a := range append(more, "rouse.dev/runtime=vllm", "rouse.dev/model=sim/llama-8b", "rouse.dev/memory=64Mi", "autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev") {
		args = append(args, "--annotation-revision", a)
	}
	return args
}

// stream asks a model for a stream and returns the time to its first event.
func (b *clusterBench) stream(ctx context.Context, name string) (time.Duration, error) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"hello","max_tokens":4,"temperature":0,"stream":true}`, name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ingress+"/v1/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	req.Host = name + ".default.example.com"
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var took time.Duration
	last := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") { // a comment is no answer
			if last = lines.Text(); took == 0 {
				took = time.Since(began)
			}
		}
	}
	if resp.StatusCode != http.StatusOK || last != "data: [DONE]" {
		return took, fmt.Errorf("%s answers %s, and last %q", name, resp.Status, last)
	}
	return took, nil
}

// wake measures a function that sleeps, and beside it, in the same run, a stock function from zero.
func (b *clusterBench) wake(ctx context.Context) ([]report.Measurement, error) {
	for _, name := range []string{waker, wakeStock} {
		if _, err := b.stream(ctx, name); err != nil {
			return nil, err
		}
	}
	const each = 10
	var ours, stock, awake []float64
	for round := range b.rounds {
		for range each {
			if _, err := command(ctx, "kn", "rouse", "sleep", waker); err != nil {
				return nil, err
			}
			time.Sleep(pause)
			d, err := b.stream(ctx, waker)
			if err != nil {
				return nil, err
			}
			ours = append(ours, report.Millis(d))
			if d, err = b.stream(ctx, waker); err != nil {
				return nil, err
			}
			awake = append(awake, report.Millis(d))
		}
		if err := b.gone(ctx, wakeStock); err != nil {
			return nil, err
		}
		d, err := b.stream(ctx, wakeStock)
		if err != nil {
			return nil, err
		}
		stock = append(stock, report.Millis(d))
		fmt.Printf("round %d of %d: so far p50 %.2f ms, stock %.0f ms\n", round+1, b.rounds, report.Quantile(ours, 0.5), report.Quantile(stock, 0.5))
	}
	zero := report.Summarise(stock)
	m := report.Measurement{
		Name: "wake of a sleeper, wake time 0", Unit: "ms", N: len(ours), Rouse: report.Summarise(ours), Baseline: &zero,
		What:    "a streamed request for a function whose one pod sleeps at level 1 to the first event, through ingress and activator, with a simulated vLLM that wakes in no time",
		Against: fmt.Sprintf("the same model server as a function of Knative's own class with no pod, through the same ingress, %d times in between", len(stock)),
		Note:    fmt.Sprintf("the same request while the function is awake: p50 %.2f ms", report.Quantile(awake, 0.5)),
	}
	m.DifferenceOfP50, m.Ratio = report.Round(m.Rouse.P50-zero.P50), report.Round(m.Rouse.P50/zero.P50)
	p99 := report.Quantile(ours, 0.99)
	return []report.Measurement{m.Gated(m.Rouse.P50 <= wakeGateP50 && p99 <= wakeGateP99, "p50 ≤ %g ms and p99 ≤ %g ms (it is %.2f)", wakeGateP50, wakeGateP99, p99)}, nil
}

// wakeCrowd measures many functions that sleep and are all asked in the same moment.
func (b *clusterBench) wakeCrowd(ctx context.Context) ([]report.Measurement, error) {
	var all strings.Builder
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("crowd-%d", i)
		fmt.Fprintf(&all, crowdService, names[i], strings.TrimPrefix(noTime, "VLLMSIM_FLAGS="), simulator)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if _, err := command(ctx, "kubectl", "delete", "ksvc", "-n", "default", "-l", "bench=crowd"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if err := apply(ctx, all.String()); err != nil {
		return nil, err
	}
	if _, err := command(ctx, "kubectl", "wait", "ksvc", "-n", "default", "-l", "bench=crowd", "--for=condition=Ready", "--timeout=180s"); err != nil {
		return nil, err
	}
	const few = 5 // pods are made at a time: that is not measured
	for i := 0; i < len(names); i += few {
		end := min(i+few, len(names))
		if _, err := b.streams(ctx, names[i:end]); err != nil {
			return nil, err
		}
		if end%20 == 0 {
			fmt.Printf("%d of %d functions have started\n", end, len(names))
		}
	}
	var woken []float64
	for range max(2, b.rounds/3) {
		if _, err := command(ctx, "kn", append([]string{"rouse", "sleep"}, names...)...); err != nil {
			return nil, err
		}
		time.Sleep(500 * time.Millisecond) // what the sleep set in motion ends
		took, err := b.streams(ctx, names)
		if err != nil {
			return nil, err
		}
		woken = append(woken, took...)
	}
	awake, err := b.streams(ctx, names)
	if err != nil {
		return nil, err
	}
	base := report.Summarise(awake)
	m := report.Measurement{
		Name: fmt.Sprintf("%d sleepers woken at once", len(names)), Unit: "ms", N: len(woken), Rouse: report.Summarise(woken), Baseline: &base,
		What:    "one streamed request to each of so many functions in the same moment, each with one pod that sleeps at level 1, to the first event; client, ingress and pods share the machine",
		Against: "the same requests in the same moment while all are awake",
	}
	m.DifferenceOfP50, m.Ratio = report.Round(m.Rouse.P50-base.P50), report.Round(m.Rouse.P50/base.P50)
	added := m.Rouse.P95 - base.P95
	return []report.Measurement{m.Gated(added <= crowdGateP95, "p95 at most %g ms above the p95 of functions that are awake (it is %.0f)", crowdGateP95, added)}, nil
}

// streams asks functions in the same moment.
func (b *clusterBench) streams(ctx context.Context, names []string) ([]float64, error) {
	return AtOnce(len(names), func(i int) (time.Duration, error) { return b.stream(ctx, names[i]) })
}

// crowdService is one of many.
const crowdService = `---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s, namespace: default, labels: {bench: crowd}}
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev
        autoscaling.knative.dev/initial-scale: "0"
        queue.sidecar.serving.knative.dev/cpu-resource-request: 5m
        rouse.dev/runtime: vllm
        rouse.dev/model: sim/llama-8b
        rouse.dev/memory: 64Mi
        rouse.dev/sleep-after: "0"
        rouse.dev/gone-after: "0"
    spec:
      containers: [{image: "%[3]s", env: [{name: VLLMSIM_FLAGS, value: "%[2]s"}]}]
`
