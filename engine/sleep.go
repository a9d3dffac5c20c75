package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/rouse-dev/rouse/engine/worker"
)

// State is whether the model accepts requests.
type State string

const (
	Awake    State = "awake"
	Draining State = "draining" // running requests finish, new ones are refused
	Asleep   State = "asleep"
	Waking   State = "waking"
)

// SleepMode says how Sleep treats unfinished requests.
type SleepMode string

const (
	SleepWait   SleepMode = "wait"   // they finish
	SleepAbort  SleepMode = "abort"  // they end with ErrInterrupted
	SleepMove   SleepMode = "move"   // like SleepAbort, after writing their blocks to a file, for other engines
	SleepRefuse SleepMode = "refuse" // Sleep fails with ErrBusy
)

// ErrWoken is returned by [Engine.Sleep].
var ErrWoken = errors.New("a wake came before the model was asleep")

// sleeper is a waiting caller of Sleep.
type sleeper struct {
	level int
	done  chan error // the loop sends once; size 1: the caller may have left
}

// Sleep frees the model's memory. Level 1 keeps the weights cached, and what [Keep] configures; 2 neither. New requests
// fail with [ErrAsleep] from the call on. Sleep blocks until the model sleeps at this level or deeper. If ctx ends
// first the drain is cancelled, unless another caller waits for it.
func (e *Engine) Sleep(ctx context.Context, level int, mode SleepMode) error {
	if level != 1 && level != 2 {
		return invalid("level", "sleep level %d: want 1 or 2", level)
	}
	if mode != SleepWait && mode != SleepAbort && mode != SleepMove && mode != SleepRefuse {
		return invalid("mode", "sleep mode %q: want %q, %q, %q or %q", mode, SleepWait, SleepAbort, SleepMove, SleepRefuse)
	}
	s := &sleeper{level: level, done: make(chan error, 1)}
	if !e.send(func(ctx context.Context) { e.loop.beginSleep(ctx, s, mode) }) {
		return ErrStopped
	}
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
		e.send(func(context.Context) { e.loop.cancelSleep(s) })
		return fmt.Errorf("sleep: %w", context.Cause(ctx))
	}
}

func (e *loop) beginSleep(ctx context.Context, s *sleeper, mode SleepMode) {
	if mode == SleepRefuse && len(e.live) > 0 {
		s.done <- fmt.Errorf("%w: %d sequences", ErrBusy, len(e.live))
		return
	}
	if mode == SleepMove {
		e.handOver(ctx)
	}
	if mode == SleepMove || mode == SleepAbort {
		e.failAll(ErrInterrupted)
	}
	e.sleepers = append(e.sleepers, s)
	if e.state == Awake {
		e.setState(Draining, 0)
	}
}

func (e *loop) cancelSleep(s *sleeper) {
	e.sleepers = slices.DeleteFunc(e.sleepers, func(o *sleeper) bool { return o == s })
	if len(e.sleepers) == 0 && e.state == Draining {
		e.setState(Awake, 0)
	}
}

func (e *loop) sleepIfDrained(ctx context.Context) {
	if len(e.sleepers) == 0 {
		return
	}
	e.mu.Lock()
	open := e.open // and in the mailbox
	e.mu.Unlock()
	if open > 0 || len(e.flights) > 0 { // those of ended sequences fill blocks that may be kept
		return
	}
	e.flush()
	level := e.level
	for _, s := range e.sleepers {
		level = max(level, s.level)
	}
	var err error
	if level > e.level {
		err = e.worker.Sleep(ctx, level, e.keepFor(ctx, level)...)
	}
	if err != nil {
		e.discardFlights() // the cache's state is unknown
		err = fmt.Errorf("sleep at level %d: %w", level, err)
		if e.state == Draining {
			e.setState(Awake, 0)
		}
	} else {
		e.setState(Asleep, level)
		debug.FreeOSMemory()
	}
	e.publish() // before callers go on
	e.answerSleepers(err)
}

func (e *loop) answerSleepers(err error) {
	for _, s := range e.sleepers {
		s.done <- err
	}
	e.sleepers = nil
}

func (e *Engine) setState(s State, level int) {
	e.mu.Lock()
	e.state, e.level = s, level
	e.mu.Unlock()
}

// Wake wakes the model and returns a token generated afterwards. A drain ends with [ErrWoken]. When ctx ends Wake
// returns, but the wake continues. If it fails the model sleeps.
func (e *Engine) Wake(ctx context.Context) (token int32, err error) {
	type answer struct {
		token int32
		was   State
		err   error
	}
	done := make(chan answer, 1) // the loop sends once; size 1: the caller may have left
	wake := func(ctx context.Context) {
		a := answer{was: e.state}
		switch e.state {
		case Draining:
			e.loop.answerSleepers(ErrWoken)
			e.setState(Awake, 0)
		case Asleep:
			a.token, a.err = e.loop.wakeWorker(ctx)
		}
		done <- a
	}
	if !e.send(wake) {
		return 0, ErrStopped
	}
	select {
	case a := <-done:
		if a.was == Asleep {
			return a.token, a.err
		}
		return e.Probe(ctx)
	case <-ctx.Done():
		return 0, fmt.Errorf("wake: %w", context.Cause(ctx))
	}
}

// wakeWorker blocks the loop.
func (e *loop) wakeWorker(ctx context.Context) (int32, error) {
	level := e.level
	e.setState(Waking, level)
	token, err := e.wakeAndProbe(ctx)
	if err != nil {
		e.discardFlights()
		e.setState(Asleep, level)
		return 0, fmt.Errorf("wake: %w", errors.Join(err, e.worker.Sleep(ctx, level)))
	}
	e.setState(Awake, 0)
	return token, nil
}

// Request IDs start at 1.
const probeID = 0

func (e *loop) wakeAndProbe(ctx context.Context) (int32, error) {
	kept, err := e.worker.Wake(ctx)
	if err != nil {
		return 0, err
	}
	if !kept || !e.unchanged() {
		e.discardFlights()
	}
	place, _ := e.pool.Alloc() // nothing runs, so one is free
	defer e.pool.Free(place)
	e.down, e.failures, e.forgets = false, 0, append(e.forgets[:0], probeID)
	spec := worker.Spec{Pool: string(e.pooling())}
	raw, err := spec.JSON()
	if err != nil {
		return 0, err
	}
	e.worker.Queue(&worker.Batch{Items: []worker.Item{{
		ID: probeID, Count: 1, Blocks: []int32{place}, Begin: true, Prompt: 1, Tokens: []int32{e.probeToken()}, Spec: raw, Sample: spec.Pool == "", Pool: spec.Pool != "",
	}}})
	for {
		select {
		case ev := <-e.worker.Events():
			switch {
			case ev.Lost != nil:
				e.down = true
				return 0, fmt.Errorf("probe: %w", ev.Lost)
			case ev.Output != nil && ev.Output.Step == 0: // others are from before the sleep
				return probed(ev.Output)
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("probe: %w", context.Cause(ctx))
		}
	}
}

func probed(out *worker.Output) (int32, error) {
	switch {
	case out.Error != "":
		return 0, fmt.Errorf("probe: %s", out.Error)
	case len(out.Items) == 1 && out.Items[0].Error != "":
		return 0, fmt.Errorf("probe: %s", out.Items[0].Error)
	case len(out.Items) == 1 && len(out.Items[0].Vector) > 0:
		return 0, nil
	case len(out.Items) != 1 || len(out.Items[0].Tokens) != 1:
		return 0, errors.New("probe: the worker's answer has no token")
	}
	return out.Items[0].Tokens[0].Token, nil
}
