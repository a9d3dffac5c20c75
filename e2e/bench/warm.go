package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/e2e/bench/child"
	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/process"
)

// Limits of what the two hops may take of a warm runtime.
const (
	latencyGate    = 250.0 // microseconds
	throughputGate = 0.5   // share of the runtime's requests per second
	manyAtOnce     = 32
)

// manifest declares a function with room for many requests at once; runtime are lines of its container.
func manifest(name, annotations, container string) string {
	return fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: %s
spec:
  template:
    metadata:
      annotations: {%s}
    spec:
      containerConcurrency: %d
      containers:
      - image: example.com/any
%s`, name, annotations, 2*manyAtOnce, container)
}

// warmNoop measures the hops in front of a model server that does nothing.
func (b *bench) warmNoop(ctx context.Context) ([]report.Measurement, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, fakeRuntime, "-port", port, "-announce")
	fake, _, err := child.Start(cmd, child.Stdout, "listening on")
	if err != nil {
		return nil, err
	}
	defer fake.Stop()
	s, err := b.startServer(ctx, manifest("fake", "rouse.dev/model: fake", fmt.Sprintf("        command: [%q, %s, -port, $(PORT)]\n", self, fakeRuntime)))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	return b.warm(ctx, "no-op runtime", "a model server that does nothing, over TCP on loopback", api.Endpoint("http://127.0.0.1:"+port), s.Door.Base, chat("fake", 1, false), 200)
}

// warmEngine measures the hops in front of the engine.
func (b *bench) warmEngine(ctx context.Context) ([]report.Measurement, error) {
	e, err := b.startEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Stop()
	s, err := b.startServer(ctx, manifest("pico", "rouse.dev/model: pico", ""))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	return b.warm(ctx, "engine", "rouse engine serve alone on a Unix socket", e.Base, s.Door.Base, chat("pico", 1, false), 20)
}

// warm compares the runtime at alone with the one behind door, in rounds of n requests.
func (b *bench) warm(ctx context.Context, name, against string, alone, door api.Endpoint, body []byte, n int) ([]report.Measurement, error) {
	direct, through := newClient(alone), newClient(door)
	n = b.times(n)
	defer direct.Close()
	defer through.Close()
	latency, rate, err := b.turns(ctx, []client{direct, through}, body, 30, n)
	if err != nil {
		return nil, err
	}
	l := report.Compare(report.Measurement{
		Name: "warm, one at a time, " + name, Unit: "µs", Against: against,
		What: fmt.Sprintf("the p50 of rounds of %d chat requests of one token over TCP on loopback to rouse up, keep-alive, the same client code on both sides", n),
	}, latency[1], latency[0])
	r := report.Compare(report.Measurement{
		Name: "warm, " + strconv.Itoa(manyAtOnce) + " at a time, " + name, Unit: "requests/s", Against: against,
		What: "the same requests, answered per second in rounds of 500 ms; the client and all servers share the machine's cores",
	}, rate[1], rate[0])
	return []report.Measurement{
		l.Gated(l.Difference <= latencyGate, "median difference ≤ %g µs", latencyGate),
		r.Gated(r.Ratio >= throughputGate, "ratio ≥ %g", throughputGate),
	}, nil
}
