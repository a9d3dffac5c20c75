package engine

import (
	"context"
	"fmt"
	"io"
	"iter"
)

// Check verifies the bookkeeping of memory and sequences, between two steps.
func (e *Engine) Check() error {
	done := make(chan error, 1)
	if !e.send(func(context.Context) { done <- e.loop.check() }) {
		return nil // the engine has stopped
	}
	return <-done
}

// Workers returns the worker's process IDs.
func (e *Engine) Workers() []int { return e.worker.PIDs() }

func (e *loop) check() error {
	s := e.sched.Stats()
	if n := s.Running + s.Waiting; n+len(e.suspects) != len(e.live) {
		return fmt.Errorf("%d sequences run and wait, and %d are to be computed alone, of %d", n, len(e.suspects), len(e.live))
	}
	return e.pool.Check()
}

// All yields the events; the last pair may be an error. Breaking out closes the stream.
func (s *Stream) All() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer s.Close()
		for {
			e, err := s.Next()
			if err == io.EOF {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
