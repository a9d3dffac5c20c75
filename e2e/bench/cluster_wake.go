package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

const noTime = "VLLMSIM_FLAGS=--time-scale 0"

const (
	simulator = "dev.local/rouse-vllmsim:v1"
	waker     = "bench-wake"
	wakeStock = "bench-wake-stock"
)

var wakers = map[string][]string{
	waker: append([]string{"--image", simulator, "--scale-init", "0", "--env", noTime}, revision("rouse.dev/sleep-after=0", "rouse.dev/gone-after=0")...),
	wakeStock: {"--image", simulator, "--env", noTime, "--scale-window", "6s", "--cmd", "/usr/local/bin/vllm",
		"--arg", "serve", "--arg", "sim/llama-8b", "--arg=--served-model-name", "--arg", wakeStock, "--arg=--host", "--arg", "0.0.0.0", "--arg=--port", "--arg", "8080"},
}

func revision(more ...string) (args []string) {
	for _, a := range append(more, "rouse.dev/runtime=vllm", "rouse.dev/model=sim/llama-8b", "rouse.dev/memory=64Mi", "autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev") {
		args = append(args, "--annotation-revision", a)
	}
	return args
}

func (b *clusterBench) wake(ctx context.Context) ([]report.Measurement, error) {
	asks := func(name string, as func() error) round {
		return round{as, func() (time.Time, error) { return b.of(name).First(ctx, pathText, completion(name), nil) }}
	}
	fallAsleep := func() error {
		if _, err := command(ctx, "", "kn", "rouse", "sleep", waker); err != nil {
			return err
		}
		return sleep(ctx, pause)
	}
	if _, err := takeTurns(1, 0, asks(waker, nil), asks(wakeStock, nil)); err != nil {
		return nil, err
	}
	var ours, stock, awake []float64
	for round := range b.rounds {
		took, err := takeTurns(10, 0, asks(waker, fallAsleep), asks(waker, nil))
		if err != nil {
			return nil, err
		}
		cold, err := takeTurns(1, 0, asks(wakeStock, func() error { return b.gone(ctx, wakeStock) }))
		if err != nil {
			return nil, err
		}
		ours, awake, stock = append(ours, took[0]...), append(awake, took[1]...), append(stock, cold[0]...)
		fmt.Printf("round %d of %d: so far p50 %.2f ms, stock %.0f ms\n", round+1, b.rounds, report.Quantile(ours, 0.5), report.Quantile(stock, 0.5))
	}
	m := beside(report.Measurement{
		Name: "wake of a sleeper, wake time 0", Unit: "ms",
		What:    "a streamed request for a function whose one pod sleeps at level 1 to the first event, through ingress and activator, with a simulated vLLM that wakes in no time",
		Against: fmt.Sprintf("the same model server as a function of Knative's own class with no pod, through the same ingress, %d times in between", len(stock)),
		Note:    fmt.Sprintf("the same request while the function is awake: p50 %.2f ms", report.Quantile(awake, 0.5)),
	}, ours, stock)
	p99 := report.Quantile(ours, 0.99)
	return []report.Measurement{m.Gated(m.Rouse.P50 <= 5 && p99 <= 15, "p50 ≤ 5 ms and p99 ≤ 15 ms (it is %.2f)", p99)}, nil
}

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
		if _, err := command(ctx, "", "kubectl", "delete", "ksvc", "-n", "default", "-l", "bench=crowd"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if _, err := command(ctx, all.String(), "kubectl", "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := command(ctx, "", "kubectl", "wait", "ksvc", "-n", "default", "-l", "bench=crowd", "--for=condition=Ready", "--timeout=180s"); err != nil {
		return nil, err
	}
	return wokenAtOnce(ctx, b.of, names, max(2, b.rounds/3), "a cluster", func() error {
		_, err := command(ctx, "", "kn", append([]string{"rouse", "sleep"}, names...)...)
		return err
	})
}

// beside compares series whose values do not belong together.
func beside(m report.Measurement, ours, theirs []float64) report.Measurement {
	m, base := report.Of(m, ours...), report.Summarise(theirs)
	m.Baseline, m.DifferenceOfP50, m.Ratio = &base, report.Round(m.Rouse.P50-base.P50), report.Round(m.Rouse.P50/base.P50)
	return m
}

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
