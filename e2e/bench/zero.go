package main

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Limits of what a start from zero may take longer than the runtime alone, in milliseconds.
const (
	asleepGate = 2.0
	goneGate   = 10.0
)

// asleep measures the way from asleep to the first byte.
func (b *localBench) asleep(ctx context.Context) ([]report.Measurement, error) {
	e, err := b.startEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Stop()
	s, err := b.startServer(ctx, "")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	alone, door := NewClient(e.Base), s.Door
	defer alone.Close()
	body := chat("pico", 4, true)
	var rouse, baseline []float64
	n := b.rounds(100)
	for i := -3; i < n; i++ { // the first ones warm both sides up
		if err := alone.Post(ctx, "/sleep?level=1", nil); err != nil {
			return nil, err
		}
		if i == -3 {
			if err := door.Post(ctx, pathChat, body); err != nil { // there has to be an instance
				return nil, err
			}
		}
		if err := s.rest(ctx, "pico"); err != nil {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond) // what the sleep set in motion ends
		a, err := timed(ctx, func() error { return alone.Post(ctx, "/wake_up", nil) }, alone, body)
		if err != nil {
			return nil, err
		}
		r, err := timed(ctx, nil, door, body)
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			rouse, baseline = append(rouse, r), append(baseline, a)
		}
	}
	m := report.Compare(report.Measurement{
		Name: "asleep to first byte", Unit: "ms",
		What:    "a streamed chat request over TCP on loopback to rouse up, whose one instance sleeps at level 1 under a standing grant, to the stream's first byte",
		Against: "rouse engine serve alone on a Unix socket, asleep at level 1: POST /wake_up, then the same request to its first byte",
	}, rouse, baseline)
	return []report.Measurement{m.Gated(m.DifferenceOfP50 <= asleepGate, "difference of p50 ≤ %g ms", asleepGate)}, nil
}

// timed is the time of before, if there is something to be done before, and a request to its first byte.
func timed(ctx context.Context, before func() error, c *Client, body []byte) (float64, error) {
	began := time.Now()
	if before != nil {
		if err := before(); err != nil {
			return 0, err
		}
	}
	at, err := c.First(ctx, pathChat, body, nil)
	return report.Millis(at.Sub(began)), err
}

// gone measures the way from no process to the first byte.
func (b *localBench) gone(ctx context.Context) ([]report.Measurement, error) {
	s, err := b.startServer(ctx, "")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	door := s.Door
	body := chat("pico", 4, true)
	var rouse, baseline []float64
	n := b.rounds(40)
	for i := -2; i < n; i++ {
		a, err := b.engineFromZero(ctx, body)
		if err != nil {
			return nil, err
		}
		if err := s.stopFunction(ctx, "pico"); err != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond) // what the end set in motion ends
		r, err := timed(ctx, nil, door, body)
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			rouse, baseline = append(rouse, r), append(baseline, a)
		}
	}
	m := report.Compare(report.Measurement{
		Name: "gone to first byte", Unit: "ms",
		What:    "a streamed chat request over TCP on loopback to rouse up, whose function has no process, to the stream's first byte",
		Against: "the exec of rouse engine serve to its line \"listening on\", then the same request over its Unix socket to the first byte",
	}, rouse, baseline)
	return []report.Measurement{m.Gated(m.DifferenceOfP50 <= goneGate, "difference of p50 ≤ %g ms", goneGate)}, nil
}

// engineFromZero is the time of an engine's start and first byte.
func (b *localBench) engineFromZero(ctx context.Context, body []byte) (float64, error) {
	e, err := b.startEngine(ctx)
	if err != nil {
		return 0, err
	}
	defer e.Stop()
	c := NewClient(e.Base)
	defer c.Close()
	at, err := c.First(ctx, pathChat, body, nil)
	return report.Millis(at.Sub(e.Began)), err
}
