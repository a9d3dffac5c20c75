package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

var warmGates = gates{added: 250, stream: 120, share: 0.5, private: 8}

func manifest(model, container string) string {
	return fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: %s
spec:
  template:
    metadata:
      annotations: {rouse.dev/model: %[1]s}
    spec:
      containerConcurrency: %d
      containers:
      - image: example.com/any
%s`, model, 2*manyAtOnce, container)
}

func (b *localBench) fake() string {
	return manifest("fake", fmt.Sprintf("        command: [%q, %s, -port, $(PORT)]\n", b.self, fakeRuntime))
}

func (b *localBench) warmBeside(ctx context.Context) ([]report.Measurement, error) {
	bare, err := b.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	proxy, line, err := Start(exec.CommandContext(ctx, b.self, reverseProxy, string(bare.Base)), "listening on")
	if err != nil {
		return nil, err
	}
	servers := []hop{bare, {name: "ReverseProxy", Client: NewClient(Listening(line)), programs: []*Process{proxy}}}
	defer servers[1].stop()
	if swap, err := b.startLlamaSwap(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench: llama-swap is left out: %v\n", err)
	} else {
		defer swap.stop()
		servers = append(servers, swap)
	}
	s, err := b.startServer(ctx, b.fake())
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	servers = append(servers, hop{"rouse up", s.Door, []*Process{s.Process}, warmGates})
	return b.hops(ctx, servers, loads, "fake", againstFake)
}

func (b *localBench) warmEngine(ctx context.Context) ([]report.Measurement, error) {
	e, err := b.startEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Stop()
	s, err := b.startServer(ctx, manifest("pico", ""))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	return b.hops(ctx, []hop{{Client: e.Client}, {"rouse up", s.Door, []*Process{s.Process}, warmGates}}, loads[:3], "pico",
		"rouse engine serve alone on a Unix socket")
}
