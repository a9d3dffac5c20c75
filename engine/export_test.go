package engine

import "context"

// Check verifies the bookkeeping of scheduler and memory, between two steps.
func (e *Engine) Check() error {
	done := make(chan error, 1)
	if !e.send(func(context.Context) { done <- e.loop.sched.Check() }) {
		return nil // the engine has stopped
	}
	return <-done
}

// Workers returns the worker's process IDs.
func (e *Engine) Workers() []int { return e.worker.PIDs() }
