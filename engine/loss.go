package engine

import (
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/worker"
)

// All count in a row.
const (
	maxDeaths   = 3 // worker deaths that end a sequence
	maxFailures = 3 // of starting a worker, after which requests end; of steps, after which the worker is replaced
)

func (e *loop) handle(ev worker.Event) {
	switch {
	case ev.Output != nil:
		e.receive(ev.Output)
		e.worker.Release(ev.Output)
	case ev.Lost != nil:
		e.workerLost(ev.Lost)
	case ev.Failed != nil:
		if e.failures++; e.failures >= maxFailures {
			e.failAll(&StepError{Err: fmt.Errorf("the worker is gone, and %d attempts to start another one failed: %w", e.failures, ev.Failed)})
		}
		e.setFailure(ev.Failed)
	case ev.Up:
		e.down, e.failures = false, 0
		e.setFailure(nil)
	}
}

func (e *loop) workerLost(err error) {
	e.down = true
	e.setFailure(fmt.Errorf("the worker is lost: %w", err))
	flights := slices.Clone(e.flights)
	e.discardFlights()
	e.forgets = e.forgets[:0] // the next worker knows none
	seen := map[*sequence]bool{}
	for _, f := range flights {
		for _, p := range f.items {
			if p.q.live && !seen[p.q] {
				seen[p.q] = true
				e.suspect(p.q, err)
			}
		}
	}
	e.trySuspect()
}

func (e *loop) discardFlights() {
	for id := range e.live { // Reset forgets which the worker has
		e.forgets = append(e.forgets, uint64(id))
	}
	e.flights = e.flights[:0]
	e.sched.Reset()
}

// suspect handles a sequence in flight when a worker died.
//
//  1. After the first death it is recomputed with all others.
//  2. After the second without a token, suspects are computed one at a time: only the one at fault fails.
//  3. After the third its request ends.
func (e *loop) suspect(q *sequence, err error) {
	q.deaths++
	switch {
	case q.deaths >= maxDeaths: // 3
		e.fail(q.stream, &StepError{Err: fmt.Errorf("the worker died %d times in a row while it computed this request, the last time of: %w", q.deaths, err)})
	case q.deaths == maxDeaths-1: // 2
		e.sched.Abort(q.id)
		e.suspects = append(e.suspects, q)
	}
}

func (e *loop) trySuspect() {
	for e.isolated == nil && len(e.suspects) > 0 {
		q := e.suspects[0]
		e.suspects = slices.Delete(e.suspects, 0, 1)
		e.isolated = q
		if err := e.schedule([]*sequence{q}); err != nil {
			e.fail(q.stream, err)
		}
	}
}

func (e *loop) clearSuspect(q *sequence) {
	if q.deaths == 0 {
		return
	}
	q.deaths = 0
	e.suspects = slices.DeleteFunc(e.suspects, func(o *sequence) bool { return o == q })
	if e.isolated == q {
		e.isolated = nil
		e.trySuspect()
	}
}
