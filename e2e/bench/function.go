package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Limits of one function.
const (
	functionGate = 25.0 // MiB resident
	binaryGate   = 25.0 // MB
)

type function struct {
	*Process
	through api.Endpoint
}

const token = "bench"

func (b *localBench) startFunction(ctx context.Context) (*function, error) {
	file := filepath.Join(b.dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return nil, err
	}
	p, line, err := Start(exec.CommandContext(ctx, b.function, "--function", "default/fake", "--instance", "fake-1", "--quiet",
		"--listen", "http://127.0.0.1:0", "--token-file", file, "--concurrency", strconv.Itoa(2*manyAtOnce), "--model", "fake",
		"--", b.self, fakeRuntime, "-port", "$(PORT)"), "listening on")
	if err != nil {
		return nil, err
	}
	f := &function{p, Listening(line)}
	patient, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("the function does not become ready"))
	defer cancel()
	state := control.New(http.DefaultTransport, func() string { return token })
	if err := await(patient, time.Millisecond, func() (bool, error) {
		st, err := state.State(ctx, f.through)
		return err == nil && st.Ready(), nil
	}); err != nil {
		f.Stop()
		return nil, err
	}
	return f, nil
}

const againstFake = "the same model server, which does nothing, alone"

func (b *localBench) functionHop(ctx context.Context) ([]report.Measurement, error) {
	bare, err := b.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	f, err := b.startFunction(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	return b.hops(ctx, []hop{bare, {"function", NewClient(f.through), []*Process{f.Process}, gates{added: 100, share: 0.6}}}, loads, "fake", againstFake)
}

func (b *localBench) functionIdle(ctx context.Context) ([]report.Measurement, error) {
	f, err := b.startFunction(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	c := NewClient(f.through)
	if err := c.Post(ctx, pathChat, chat("fake", 4, true)); err != nil {
		return nil, err
	}
	c.Close()
	var rss []float64
	for range b.rounds(10) {
		time.Sleep(200 * time.Millisecond)
		_, now, err := f.Memory()
		if err != nil {
			return nil, err
		}
		rss = append(rss, now)
	}
	info, err := os.Stat(b.function)
	if err != nil {
		return nil, err
	}
	m := report.Of(report.Measurement{Name: "function, idle", Unit: "MiB", What: "resident memory (Rss) of a function whose runtime is awake, after one request"}, rss...)
	s := report.Of(report.Measurement{Name: "function, program", Unit: "MB", What: "size of the program function, built with -trimpath -ldflags '-s -w'"}, float64(info.Size())/1e6)
	return []report.Measurement{
		m.Gated(m.Rouse.P50 <= functionGate, "p50 ≤ %g MiB", functionGate),
		s.Gated(s.Rouse.P50 <= binaryGate, "≤ %g MB", binaryGate),
	}, nil
}
