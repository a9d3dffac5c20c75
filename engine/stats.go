package engine

import (
	"time"

	"github.com/rouse-dev/rouse/engine/keep"
	"github.com/rouse-dev/rouse/engine/sched"
)

// Stats is the state of an engine at the end of its last step. The counters grow
// for as long as the engine lives.
type Stats struct {
	sched.Stats
	// Open is the number of sequences that are accepted and not finished, those that the loop has not seen included.
	Open  int
	State State
	// Level is the depth of the sleep, 0 when awake.
	Level int
	// Failure is what the last step failed with, or why there is no worker; nil after a step that succeeded.
	Failure error
	// Restarts is how many attempts there were to replace a worker that was lost.
	Restarts int

	Steps           uint64
	ComputedTokens  uint64 // that went through the model
	PromptTokens    uint64 // of requests whose first token is there
	GeneratedTokens uint64
	// Kept is about blocks in files, and Recalled counts those that came back from there.
	Kept     keep.Stats
	Recalled int
	// KeptBytes is what a sleep keeps of the cache in memory; 0 when awake.
	KeptBytes int64

	// Busy is how long the worker computed, in all steps.
	Busy time.Duration
}

// Stats returns a copy of the current numbers. It does not wait for the loop.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Open, s.State, s.Level, s.Restarts = e.open, e.state, e.level, e.worker.Restarts()
	return s
}

// publish shows the schedule to others.
func (e *Engine) publish() {
	s := e.sched.Stats()
	e.mu.Lock()
	e.stats.Recalled, e.stats.KeptBytes = e.recalled, 0
	if e.store != nil {
		e.stats.Kept = e.store.Stats()
	}
	if e.state == Asleep {
		e.stats.KeptBytes = int64(s.BlocksCached) * e.info.BlockBytes
	}
	e.stats.Stats = s
	e.stats.PromptTokens, e.stats.GeneratedTokens = e.prompted, e.generated
	e.mu.Unlock()
}

// setFailure says whether there is something wrong with the worker; nil: nothing.
func (e *Engine) setFailure(err error) {
	e.mu.Lock()
	e.stats.Failure = err
	e.mu.Unlock()
}

// count adds a step.
func (e *Engine) count(tokens int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Failure = err
	if err == nil {
		e.stats.Steps++
		e.stats.ComputedTokens += uint64(tokens)
	}
}

// countBusy adds the worker's time for a step.
func (e *Engine) countBusy(d time.Duration) {
	e.mu.Lock()
	e.stats.Busy += d
	e.mu.Unlock()
}

// countToken adds a token, and the prompt with the first of a request. publish shows it.
func (e *Engine) countToken(q *sequence, ev *Event) {
	if ev.Token >= 0 {
		e.generated++
	}
	if len(q.made) <= 1 && q.nth == 0 {
		e.prompted += uint64(len(q.request.Prompt))
	}
}

// BlockSize is the number of tokens in a block of the KV memory.
func (e *Engine) BlockSize() int { return e.pool.Size() }

// Seats is the number of sequences that run at once.
func (e *Engine) Seats() int { return e.cfg.Seats }

// Workers are the processes that compute, none if that happens in this one.
func (e *Engine) Workers() []int { return e.worker.PIDs() }
