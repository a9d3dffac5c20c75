package main

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Limits, in milliseconds more than the runtime alone.
const (
	asleepGate = 2.0
	goneGate   = 10.0
)

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
	body := chat("pico", 4, true)
	if err := s.Door.Post(ctx, pathChat, body); err != nil { // there has to be an instance
		return nil, err
	}
	return asleepOrGone(ctx, b.rounds(100), 3, s, body, round{
		before: func() error {
			if err := e.Post(ctx, "/sleep?level=1", nil); err != nil {
				return err
			}
			if err := s.rest(ctx, "pico"); err != nil {
				return err
			}
			return sleep(ctx, 20*time.Millisecond) // what the sleep set in motion ends
		},
		took: func() (time.Time, error) {
			if err := e.Post(ctx, "/wake_up", nil); err != nil {
				return time.Time{}, err
			}
			return e.First(ctx, pathChat, body, nil)
		},
	}, asleepGate, report.Measurement{
		Name: "asleep to first byte", Unit: "ms",
		What:    "a streamed chat request over TCP on loopback to rouse up, whose one instance sleeps at level 1 under a standing grant, to the stream's first byte",
		Against: "rouse engine serve alone on a Unix socket, asleep at level 1: POST /wake_up, then the same request to its first byte",
	})
}

func (b *localBench) gone(ctx context.Context) ([]report.Measurement, error) {
	s, err := b.startServer(ctx, "")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	body := chat("pico", 4, true)
	return asleepOrGone(ctx, b.rounds(40), 2, s, body, round{
		before: func() error {
			if err := s.stopFunction(ctx, "pico"); err != nil {
				return err
			}
			return sleep(ctx, 50*time.Millisecond) // what the end set in motion ends
		},
		took: func() (time.Time, error) {
			e, err := b.startEngine(ctx)
			if err != nil {
				return time.Time{}, err
			}
			defer e.Stop()
			return e.First(ctx, pathChat, body, nil)
		},
	}, goneGate, report.Measurement{
		Name: "gone to first byte", Unit: "ms",
		What:    "a streamed chat request over TCP on loopback to rouse up, whose function has no process, to the stream's first byte",
		Against: "the exec of rouse engine serve to its line \"listening on\", then the same request over its Unix socket to the first byte",
	})
}

func asleepOrGone(ctx context.Context, rounds, warm int, s *Up, body []byte, alone round, most float64, m report.Measurement) ([]report.Measurement, error) {
	took, err := takeTurns(rounds, warm, alone, round{took: func() (time.Time, error) { return s.Door.First(ctx, pathChat, body, nil) }})
	if err != nil {
		return nil, err
	}
	m = report.Compare(m, took[1], took[0])
	return []report.Measurement{m.Gated(m.DifferenceOfP50 <= most, "difference of p50 ≤ %g ms", most)}, nil
}
