package engine

import (
	"time"

	"github.com/rouse-dev/rouse/engine/keep"
	"github.com/rouse-dev/rouse/engine/sched"
)

// Stats is the state of an engine at the end of its last step. Counters never reset.
type Stats struct {
	sched.Stats
	// Open is the number of sequences accepted and not finished, including those still in the mailbox.
	Open  int
	State State
	// Level is the sleep level, 0 when awake.
	Level int
	// Failure is the error of the last step, or the reason why there is no worker; nil after a successful step.
	Failure error
	// Restarts is the number of attempts to replace a lost worker.
	Restarts int

	Steps           uint64
	PromptTokens    uint64 // of requests with a first token
	GeneratedTokens uint64
	// Kept describes blocks in files; Recalled is the number of blocks read back from them.
	Kept     keep.Stats
	Recalled int
	// KeptBytes is the size of the cache that a sleep keeps in memory; 0 when awake.
	KeptBytes int64

	// Busy is the worker's total compute time.
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

// publish copies the loop's numbers to Stats.
func (e *loop) publish() {
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

// setFailure sets Stats.Failure.
func (e *Engine) setFailure(err error) {
	e.mu.Lock()
	e.stats.Failure = err
	e.mu.Unlock()
}

// countStep records a step.
func (e *Engine) countStep(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Failure = err
	if err == nil {
		e.stats.Steps++
	}
}

func (e *Engine) countBusy(d time.Duration) {
	e.mu.Lock()
	e.stats.Busy += d
	e.mu.Unlock()
}

// countToken counts a token, and the prompt with the first token of a request. publish copies the counters to Stats.
func (e *loop) countToken(q *sequence, ev *Event) {
	if ev.Token >= 0 {
		e.generated++
	}
	if len(q.made) <= 1 && q.nth == 0 {
		e.prompted += uint64(len(q.request.Prompt))
	}
}

// BlockSize returns the number of tokens in a KV block.
func (e *Engine) BlockSize() int { return e.loop.pool.Size() }

// Seats returns the number of sequences that run at once.
func (e *Engine) Seats() int { return e.cfg.Seats }

// Workers returns the process IDs of the worker; none if it runs in this process.
func (e *Engine) Workers() []int { return e.worker.PIDs() }
