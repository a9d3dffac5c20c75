package main

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

const (
	readyGate  = 300.0 // ms
	memoryGate = 40.0  // MiB
	idleGate   = 0.5   // percent of one processor
	idleFor    = 20 * time.Second
)

func (b *localBench) up(ctx context.Context) ([]report.Measurement, error) {
	var took []float64
	for range b.rounds(20) {
		s, err := b.startServer(ctx, "")
		if err != nil {
			return nil, err
		}
		resp, err := s.Door.Send(ctx, http.MethodGet, "/readyz", nil, nil)
		took = append(took, report.Millis(time.Since(s.Began)))
		if err == nil {
			err = resp.Body.Close()
		}
		s.Stop()
		if err != nil {
			return nil, err
		}
	}
	m := report.Of(report.Measurement{Name: "up to ready", Unit: "ms", What: "the exec of rouse up, with the built-in function, to its first answer to GET /readyz"}, took...)
	return []report.Measurement{m.Gated(m.Rouse.P50 <= readyGate, "p50 ≤ %g ms", readyGate)}, nil
}

func (b *localBench) idle(ctx context.Context) ([]report.Measurement, error) {
	s, err := b.startServer(ctx, "")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	c := s.Door
	body := chat("pico", 4, true)
	if err := c.Post(ctx, pathChat, body); err != nil {
		return nil, err
	}
	awake, err := share(ctx, s.Process, b.while(idleFor))
	if err != nil {
		return nil, err
	}
	if err := s.rest(ctx, "pico"); err != nil { // one sleep, one wake, and asleep again
		return nil, err
	}
	if err := c.Post(ctx, pathChat, body); err != nil {
		return nil, err
	}
	c.Close()
	if err := s.rest(ctx, "pico"); err != nil {
		return nil, err
	}
	asleep, err := share(ctx, s.Process, b.while(idleFor))
	if err != nil {
		return nil, err
	}
	pss, rss, err := s.Memory()
	if err != nil {
		return nil, err
	}
	one := func(name, unit, what string, v float64) report.Measurement {
		return report.Of(report.Measurement{Name: name, Unit: unit, What: what}, v)
	}
	const cpu = "user and system time of the process rouse up (activator, autoscaler, node agent) over 20 s without traffic"
	const memory = "the process rouse up, after a start, a wake and two sleeps, 20 s without traffic"
	return []report.Measurement{
		one("idle processor time, awake", "%", cpu+", its function awake", awake).Gated(awake <= idleGate, "≤ %g %% of one processor", idleGate),
		one("idle processor time, asleep", "%", cpu+", its function asleep", asleep).Gated(asleep <= idleGate, "≤ %g %% of one processor", idleGate),
		one("idle memory, Pss", "MiB", "its share of the memory of "+memory, pss).Gated(pss <= memoryGate, "≤ %g MiB", memoryGate),
		one("idle memory, Rss", "MiB", "all resident memory, that shared with its instances included, of "+memory, rss).Gated(rss <= memoryGate, "≤ %g MiB", memoryGate),
	}, nil
}

// share is in percent of one processor.
func share(ctx context.Context, p *Process, length time.Duration) (float64, error) {
	time.Sleep(time.Second) // what was asked before ends
	began := time.Now()
	before, err := p.ProcessorTime()
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, length); err != nil {
		return 0, err
	}
	after, err := p.ProcessorTime()
	return 100 * (after - before) / time.Since(began).Seconds(), err
}
