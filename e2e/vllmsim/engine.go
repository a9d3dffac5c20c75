package vllmsim

import (
	"context"
	"runtime"
	"sync"
	"time"
)

var errDead error = said("EngineCore encountered an issue. See stack trace (above) for the root cause.")

type engine struct {
	cfg     Config
	metrics *metrics
	// wakes the loop; one token, since one look at the batch sees everything
	work chan struct{}
	// reports that a device is gone; may be nil; set before the first step
	lost func() bool
	// held while sleep or weights change
	turn chan struct{}

	mu    sync.Mutex // guards all that follows
	batch *Batch     // nil until memory is taken
	jobs  map[*Sequence]*job
	// no waiting request starts; running ones continue
	paused bool
	// tags whose memory is released
	asleep map[string]bool
	level  int
	// the weights in memory are invalid
	garbage bool
	pinned  bool // host memory, by a sleep at level 1
	dead    bool
	died    chan struct{} // closed when dead is set
	drained chan struct{} // closed when nothing runs any more; may be nil

	publisher *publisher // may be nil
}

func newEngine(cfg Config, m *metrics) *engine {
	return &engine{
		cfg: cfg, metrics: m, work: make(chan struct{}, 1), turn: make(chan struct{}, 1), jobs: map[*Sequence]*job{},
		asleep: map[string]bool{}, died: make(chan struct{}),
	}
}

func (e *engine) open(blocks int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	adapters := 0
	if e.cfg.LoRA {
		adapters = e.cfg.MaxLoRAs
	}
	e.batch = NewBatch(BatchConfig{
		Sequences: e.cfg.MaxSeqs, BlockTokens: blockTokens, Blocks: blocks,
		Adapters: adapters, Events: e.publisher != nil, Timing: e.cfg.Timing,
	})
	e.metrics.opened(blocks)
}

// pass lets d of simulated time pass, or returns the end of ctx.
func (e *engine) pass(ctx context.Context, d time.Duration) error {
	d = time.Duration(float64(d) * e.cfg.TimeScale)
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Steps follow one another without a gap, however late the clock wakes the loop.
func (e *engine) loop(ctx context.Context) {
	var due time.Time
	for {
		e.mu.Lock()
		work, some := e.plan()
		e.mu.Unlock()
		if !some {
			select {
			case <-e.work:
				continue
			case <-e.died:
				return
			case <-ctx.Done():
				return
			}
		}
		d := time.Duration(float64(work.Duration) * e.cfg.TimeScale)
		if now := time.Now(); due.Add(d).Before(now) || d == 0 {
			due = now // it was idle, or cannot keep up
		}
		due = due.Add(d)
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-e.died:
				return
			case <-ctx.Done():
				return
			}
		} else {
			runtime.Gosched() // lets the readers of tokens run
		}
		e.mu.Lock()
		if e.lost != nil && e.lost() {
			e.die("CUDA error: GPU is lost. Reboot the system to recover this GPU")
			e.mu.Unlock()
			return
		}
		e.commit()
		e.mu.Unlock()
	}
}

// plan is called with mu held.
func (e *engine) plan() (Work, bool) {
	if e.batch == nil || e.dead || len(e.asleep) > 0 {
		return Work{}, false
	}
	w, some := e.batch.Plan(!e.paused)
	now := time.Now()
	for _, s := range w.Started {
		e.jobs[s].start(now, e.garbage)
	}
	e.metrics.load(e.batch)
	return w, some
}

// commit is called with mu held.
func (e *engine) commit() {
	produced, finished := e.batch.Commit()
	e.publisher.publish(e.batch.Events())
	now := time.Now()
	for _, s := range produced {
		if j := e.jobs[s]; j != nil {
			e.metrics.token(j, now)
			j.produce(now)
		}
	}
	for _, s := range finished {
		if j := e.jobs[s]; j != nil {
			e.finishJob(j, j.natural, now)
		}
	}
	e.batchChanged()
}

// finishJob is called with mu held.
func (e *engine) finishJob(j *job, reason string, now time.Time) {
	delete(e.jobs, j.seq)
	j.reason = reason
	j.finish()
	e.metrics.finished(j, now)
}

// batchChanged is called with mu held.
func (e *engine) batchChanged() {
	e.metrics.load(e.batch)
	if e.drained != nil && len(e.jobs) == e.waitingFresh() {
		close(e.drained)
		e.drained = nil
	}
}

// A drain does not wait for requests that have not started. mu is held.
func (e *engine) waitingFresh() int {
	n := 0
	for _, j := range e.jobs {
		if j.begun.IsZero() {
			n++
		}
	}
	return n
}

func (e *engine) submit(j *job) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.dead:
		return errDead
	case len(e.asleep) > 0 && e.cfg.Surface == SGLang: // vllm-project/vllm#15483; vLLM pauses its scheduler to sleep, and requests wait
		e.die("CUDA error: an illegal memory access was encountered")
		return errDead
	}
	j.arrived = time.Now()
	if !e.batch.Add(j.seq) {
		return errTooLong
	}
	e.jobs[j.seq] = j
	e.metrics.load(e.batch)
	e.wakeLoop()
	return nil
}

func (e *engine) cancel(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.jobs[j.seq] == nil {
		return
	}
	e.batch.Remove(j.seq)
	e.finishJob(j, "abort", time.Now())
	e.batchChanged()
	e.wakeLoop()
}

func (e *engine) wakeLoop() {
	select {
	case e.work <- struct{}{}:
	default:
	}
}

// abortAll is called with mu held.
func (e *engine) abortAll() {
	now := time.Now()
	for _, s := range e.batch.All() {
		e.batch.Remove(s)
		e.finishJob(e.jobs[s], "abort", now)
	}
	e.batchChanged()
}

// resetCache returns false, and does nothing, while blocks are in use.
func (e *engine) resetCache() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batch.Reset()
}

func (e *engine) isDead() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dead
}

// die is called with mu held.
func (e *engine) die(cause string) {
	if e.dead {
		return
	}
	e.dead = true
	logf(e.cfg.Log, "ERROR", "core.py:1100", "EngineCore encountered a fatal error.")
	logf(e.cfg.Log, "ERROR", "core.py:1100", "torch.AcceleratorError: %s", cause)
	for _, j := range e.jobs {
		j.err = errDead
		j.finish()
	}
	clear(e.jobs)
	close(e.died)
}

// The engine's lock guards a job.
type job struct {
	seq *Sequence
	// why it ends if its output is complete, and why it ended
	natural, reason string
	// the stop string that it ends with
	stopped string
	err     error
	over    bool
	// wakes the reader; one token, since one look sees everything
	changed chan struct{}

	arrived, begun, first, last time.Time
}

// Lost weights, and KV entries computed with them, spoil the output.
func (j *job) start(now time.Time, garbage bool) {
	if !j.begun.IsZero() {
		return
	}
	j.begun = now
	if garbage || j.seq.Stale > 0 {
		j.spoil()
	}
}

func (j *job) spoil() {
	out := j.seq.Tokens[j.seq.Prompt:]
	copy(out, Garbage(Seed(Decode(j.seq.Tokens[:min(j.seq.Prompt, 64)])), len(out)))
	j.stopped = ""
}

func (j *job) produce(now time.Time) {
	if j.first.IsZero() {
		j.first = now
	}
	j.last = now
	j.wake()
}

func (j *job) finish() {
	j.over = true
	j.wake()
}

func (j *job) wake() {
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// progress waits until a job has more than have tokens or is over, and returns all that it has.
// These tokens do not change any more, and may be read without the lock.
func (e *engine) progress(ctx context.Context, j *job, have int) (tokens []Token, over bool, err error) {
	for {
		e.mu.Lock()
		n := j.seq.Generated
		tokens, over, err = j.seq.Tokens[j.seq.Prompt:j.seq.Prompt+n], j.over, j.err
		e.mu.Unlock()
		if n > have || over || err != nil {
			return tokens, over, err
		}
		select {
		case <-j.changed:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}
