package engine

import (
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/worker"
)

// Limits of patience with a worker that is lost.
const (
	maxDeaths   = 3 // of workers in a row, and the sequence that was computed each time is given up
	maxFailures = 3 // attempts to replace a worker in a row, and the requests that wait end with an error; or steps in a row, and the worker is replaced
)

// happen takes an event of the worker.
func (e *Engine) happen(ev worker.Event) {
	switch {
	case ev.Output != nil:
		e.receive(ev.Output)
		e.worker.Release(ev.Output)
	case ev.Lost != nil:
		e.lose(ev.Lost)
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

// lose goes back to what is known: the worker is gone, and with it all that was in flight.
func (e *Engine) lose(err error) {
	e.down = true
	e.setFailure(fmt.Errorf("the worker is lost: %w", err))
	flights := slices.Clone(e.flights)
	e.giveUp()
	e.forgets = e.forgets[:0] // the next worker knows nobody
	seen := map[*sequence]bool{}
	for _, f := range flights {
		for _, p := range f.items {
			if p.q.live && !seen[p.q] {
				seen[p.q] = true
				e.suspect(p.q, err)
			}
		}
	}
	e.try()
}

// giveUp forgets the batches in flight and all that is computed.
func (e *Engine) giveUp() {
	for id := range e.live { // the scheduler does not tell any more which of them the worker knows
		e.forgets = append(e.forgets, uint64(id))
	}
	e.flights = e.flights[:0]
	e.sched.Reset()
}

// suspect decides about a sequence that was being computed when a worker died.
//
//  1. Once is bad luck: it is computed again with all others.
//  2. The second time in a row without a token it steps aside: those under suspicion are computed
//     one at a time, so that the innocent among them go on.
//  3. The third time its request ends with an error.
func (e *Engine) suspect(q *sequence, err error) {
	q.deaths++
	switch {
	case q.deaths >= maxDeaths: // 3
		e.fail(q.stream, &StepError{Err: fmt.Errorf("the worker died %d times in a row while it computed this request, the last time of: %w", q.deaths, err)})
	case q.deaths == maxDeaths-1: // 2
		e.sched.Abort(q.id)
		e.suspects = append(e.suspects, q)
	}
}

// try schedules the next of the suspects.
func (e *Engine) try() {
	for e.trial == nil && len(e.suspects) > 0 {
		q := e.suspects[0]
		e.suspects = slices.Delete(e.suspects, 0, 1)
		e.trial = q
		if err := e.schedule([]*sequence{q}); err != nil {
			e.fail(q.stream, err)
		}
	}
}

// acquit ends the suspicion against a sequence: it made a token, or it is gone.
func (e *Engine) acquit(q *sequence) {
	if q.deaths == 0 {
		return
	}
	q.deaths = 0
	e.suspects = slices.DeleteFunc(e.suspects, func(o *sequence) bool { return o == q })
	if e.trial == q {
		e.trial = nil
		e.try()
	}
}
