package engine

import (
	"time"

	"github.com/rouse-dev/rouse/engine/keep"
	"github.com/rouse-dev/rouse/engine/sched"
)

// Stats is of the last step's end. Counters never reset.
type Stats struct {
	sched.Stats
	// Open counts unfinished sequences, with the mailbox's.
	Open  int
	State State
	// Level is 0 when awake.
	Level int
	// Failure is the error of the last step, or why there is no worker; nil after a good step.
	Failure  error
	Restarts int

	Steps           uint64
	PromptTokens    uint64 // of requests with a first token
	GeneratedTokens uint64
	// Recalled counts blocks read from files.
	Kept     keep.Stats
	Recalled int
	// KeptBytes is the cache that a sleep keeps; 0 when awake.
	KeptBytes int64

	// Busy is the worker's compute time.
	Busy time.Duration
}

// Stats does not wait for the loop.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Open, s.State, s.Level, s.Restarts = e.open, e.state, e.level, e.worker.Restarts()
	return s
}

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

func (e *Engine) setFailure(err error) {
	e.mu.Lock()
	e.stats.Failure = err
	e.mu.Unlock()
}

func (e *Engine) countStep(err error, busy time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Failure = err
	e.stats.Busy += busy
	if err == nil {
		e.stats.Steps++
	}
}

// countToken counts the prompt with a request's first token.
func (e *loop) countToken(q *sequence, ev *Event) {
	if ev.Token >= 0 {
		e.generated++
	}
	if len(q.made) <= 1 && q.nth == 0 {
		e.prompted += uint64(len(q.request.Prompt))
	}
}

// BlockSize is in tokens.
func (e *Engine) BlockSize() int { return e.loop.pool.Size() }

// Seats is how many sequences run at once.
func (e *Engine) Seats() int { return e.cfg.Seats }
