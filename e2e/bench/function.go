package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/pyfunc/envelope"
)

// Limits of one function, alone, in front of its runtime.
const (
	streamGate      = 64.0 // KiB per open stream
	envelopeGate    = 60.0 // microseconds
	functionGate    = 25.0 // MiB resident
	binaryGate      = 25.0 // MB
	openStreams     = 1000
	eventsPerStream = 2000
)

// function is "function" with a model server that does nothing.
type function struct {
	*Process
	through api.Endpoint
}

// token is the token of the control plane.
const token = "bench"

// startFunction starts one and returns when it answers.
func (b *localBench) startFunction(ctx context.Context) (*function, error) {
	file := filepath.Join(b.dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return nil, err
	}
	p, line, err := Start(exec.CommandContext(ctx, b.function, "--function", "default/fake", "--instance", "fake-1", "--quiet",
		"--listen", "http://127.0.0.1:0", "--token-file", file, "--concurrency", fmt.Sprint(openStreams+100), "--model", "fake",
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

// functionHop measures requests through the function.
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

// functionStream measures what an open stream holds.
func (b *localBench) functionStream(ctx context.Context) ([]report.Measurement, error) {
	f, err := b.startFunction(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	through := NewClient(f.through)
	defer through.Close()
	kib, err := f.perStream(ctx, through, chat("fake", eventsPerStream, true), report.Sized(b.small, openStreams, openStreams/20))
	if err != nil {
		return nil, err
	}
	held := report.Of(report.Measurement{Name: "function, memory of an open stream", Unit: "KiB",
		What: fmt.Sprintf("growth of the function's resident memory by %d streams that have had their first event and stay open, divided by their number", openStreams)}, kib)
	return []report.Measurement{held.Gated(kib <= streamGate, "≤ %g KiB", streamGate)}, nil
}

// perStream opens n streams that stall after their first event.
func (f *function) perStream(ctx context.Context, c *Client, body []byte, n int) (kib float64, err error) {
	_, before, err := f.Memory()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range n {
		resp, err := c.Send(ctx, http.MethodPost, pathChat, http.Header{"X-Fault": {"stall=1"}}, body)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close() // all stay open until the end
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
			return 0, err
		}
	}
	_, after, err := f.Memory()
	return (after - before) * 1024 / float64(n), err
}

// functionEnvelope compares a chat in MLflow's envelope with the same chat, sent plainly.
func (b *localBench) functionEnvelope(ctx context.Context) ([]report.Measurement, error) {
	f, err := b.startFunction(ctx)
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	const size = 4 << 10
	plain := fmt.Appendf(nil, `{"model":"fake","max_tokens":1,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("a word and \"another\" ", size/21))
	outer := envelope.AppendRequest([]byte(`{"inputs":[`), envelope.Request{
		Method: http.MethodPost, Path: "/chat/completions", Header: []envelope.Field{{Name: "content-type", Value: "application/json"}},
		Body: plain, Compat: true,
	})
	outer = append(outer, "]}"...)
	c := NewClient(f.through)
	defer c.Close()
	var took [2][]float64
	for range b.rounds(40) {
		for i, body := range [][]byte{plain, outer} {
			path := []string{pathChat, "/invocations"}[i]
			ts, err := c.Serial(ctx, b.times(200), path, body)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], report.Quantile(ts, 0.5))
		}
	}
	m := report.Compare(report.Measurement{Name: "function, a chat in an envelope", Unit: "µs", Against: "the same request to the same function, sent plainly",
		What: fmt.Sprintf("the p50 of rounds of 200 requests with a chat body of %d bytes, in mlflow-extensions' envelope to /invocations", len(plain))}, took[1], took[0])
	return []report.Measurement{m.Gated(m.Difference <= envelopeGate, "median difference ≤ %g µs", envelopeGate)}, nil
}

// functionIdle measures what a function takes that does nothing, and its program's size.
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
