// Package engine generates text: one scheduling loop runs many requests through one model, in batches. Its input is
// tokens and its output is events.
//
// The life of a request:
//
//  1. Add validates it and puts its sequences into the loop's mailbox. It fails at once if the model is asleep or
//     the queue is full.
//  2. The loop, which is Run, reads the mailbox. Package sched chooses what to compute, and the loop queues that
//     batch to the worker, while an earlier one computes (unless [Config.Sync]): the worker fills in tokens that the
//     loop does not know yet.
//  3. The worker computes the batch and samples a token for each sequence that needs one.
//  4. The loop takes the tokens of batch i while the worker computes batch i+1. A sequence that ends with batch i
//     is in batch i+1 already: its output there is discarded.
//  5. Events go to the request's [Stream], which never blocks the loop.
//  6. When a client leaves, its sequences are dropped before the next batch.
//
// A worker that dies is replaced, and its sequences are recomputed. No token is lost or sent twice: sampling is a pure
// function of request and tokens. A failed step ends all requests with its error.
//
// All methods are safe for many goroutines. Run's goroutine owns all but the mailbox.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/keep"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

var (
	ErrAsleep      = errors.New("the model is asleep or about to be: wake it with POST /wake_up")
	ErrFull        = errors.New("too many requests are waiting: try again later")
	ErrBusy        = errors.New("requests are running: drain them, or ask for it")
	ErrStopped     = errors.New("the engine stops")
	ErrInterrupted = errors.New("the model went to sleep while the request ran")
)

// Config bounds an engine.
type Config struct {
	// Seats is how many sequences run at once; 0: 32.
	Seats int
	// Budget is in tokens per step; 0: 512, or Seats if more.
	Budget int
	// Context bounds prompt and answer together, in tokens; 0: the model's, the most.
	Context int
	// Sync makes no batch before the output of the last.
	Sync bool
	// NoPrefix disables the prefix cache. A Stateful model has none, and no drafts.
	NoPrefix bool
	// Draft is the most draft tokens of a sequence in a step (speculative decoding by prompt lookup).
	Draft int
	// Adapters is the most loaded at once; 0: as many as the memory holds.
	Adapters int
	Keep     Keep
	// HostWork is CPU time added to each output, for benchmarks.
	HostWork time.Duration
}

func (c Config) withDefaults() Config {
	if c.Seats == 0 {
		c.Seats = 32
	}
	if c.Budget == 0 {
		c.Budget = max(512, c.Seats)
	}
	return c
}

const (
	maxInFlight = 2    // batches: one computes, the next one waits at the worker
	maxOpen     = 4096 // sequences, running and waiting
)

// Engine runs one model.
type Engine struct {
	cfg     Config
	context int
	model   model.Config
	worker  *worker.Supervisor
	tok     *tokenizer.Tokenizer
	ends    []int32
	wakeup  chan struct{} // size 1: one signal is enough

	// mu guards what follows. The loop holds it briefly.
	mu          sync.Mutex
	mailbox     []func(context.Context) // run by the loop with its context
	state       State
	level       int
	stopped     bool // nothing runs the mailbox
	open        int  // unfinished sequences
	images      int  // of open sequences
	lastID      sched.ID
	stats       Stats
	adapters    map[string]*adapter
	lastAdapter int32

	loop *loop
}

// loop belongs to the goroutine of Run.
type loop struct {
	*Engine
	pool     *block.Pool
	sched    *sched.Scheduler
	live     map[sched.ID]*sequence
	down     bool
	failures int // to replace the worker, in a row
	failed   int // steps in a row
	flights  []flight
	recent   []*sequence // of the last batch, in order
	batch    worker.Batch
	results  []sched.Result
	tokens   []int32 // backs results' Tokens
	outbox   []message
	forgets  []uint64    // besides those that the scheduler ends
	suspects []*sequence // to be computed alone; see suspect
	isolated *sequence   // the suspect being computed
	sleepers []*sleeper  // waiting for the drain

	prompted, generated uint64 // tokens

	info     worker.Info
	store    *keep.Store // nil: no files
	recalled int         // blocks read from files
}

// Over returns an engine for a worker's model. Run starts the worker, unless it runs, and closes it. info is from
// [worker.Supervisor.Start].
func Over(w *worker.Supervisor, info worker.Info, tok *tokenizer.Tokenizer, cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, model: info.Model, worker: w, tok: tok, adapters: map[string]*adapter{},
		wakeup: make(chan struct{}, 1), state: Awake,
	}
	e.context = e.model.Context
	if cfg.Context > e.context {
		return nil, fmt.Errorf("a context of %d tokens is asked for, the model has %d: ask for less", cfg.Context, e.context)
	}
	if cfg.Context > 0 {
		e.context = cfg.Context
	}
	e.context = min(e.context, info.Blocks*info.BlockSize)
	if tok.Size() > e.model.Vocab {
		return nil, fmt.Errorf("the tokenizer has %d tokens, the model knows %d: the file is inconsistent", tok.Size(), e.model.Vocab)
	}
	if e.model.Stateful() { // it is computed from the beginning only
		e.cfg.NoPrefix, e.cfg.Draft = true, 0
	}
	limits := sched.Config{Budget: cfg.Budget, Seats: cfg.Seats, Depth: min(maxInFlight, w.Depth()), Prefix: !e.cfg.NoPrefix, Draft: e.cfg.Draft}
	if cfg.Sync {
		limits.Depth = 1
	}
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	pool := block.New(info.Blocks, info.BlockSize)
	e.loop = &loop{Engine: e, pool: pool, sched: sched.New(limits, pool), live: map[sched.ID]*sequence{}, info: info}
	for t := range int32(tok.Size()) {
		if tok.IsEnd(t) {
			e.ends = append(e.ends, t)
		}
	}
	return e, nil
}

// Context returns the most tokens of prompt and answer together.
func (e *Engine) Context() int { return e.context }

// Model returns the model's shape.
func (e *Engine) Model() model.Config { return e.model }

// Tokenizer returns the model's tokenizer.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tok }

// Run runs until ctx ends, once. When it returns, every stream and waiting call has ended with [ErrStopped], and the
// worker is closed. It fails if the worker can't be started.
func (e *Engine) Run(ctx context.Context) error { return e.loop.run(ctx) }

func (e *loop) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, e.shutdown(ctx)) }()
	if ctx.Err() != nil {
		return nil
	}
	if _, err := e.worker.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer e.openStore(ctx)()
	for ctx.Err() == nil {
		e.deliver(ctx)
		e.sleepIfDrained(ctx)
		if e.cfg.Sync {
			e.flush() // one step at a time
		}
		e.fill()
		e.publish() // before a client sees an event
		e.flush()
		select {
		case <-e.wakeup:
		case ev := <-e.worker.Events():
			e.handle(ev)
		case <-ctx.Done():
		}
	}
	return nil
}

func (e *loop) deliver(ctx context.Context) {
	e.mu.Lock()
	mail := e.mailbox
	e.mailbox = nil
	e.mu.Unlock()
	for _, f := range mail {
		f(ctx)
	}
}

// send reports false if the loop has ended.
func (e *Engine) send(f func(context.Context)) bool {
	e.mu.Lock()
	stopped := e.stopped
	if !stopped {
		e.mailbox = append(e.mailbox, f)
	}
	e.mu.Unlock()
	e.signal()
	return !stopped
}

func (e *Engine) signal() {
	select {
	case e.wakeup <- struct{}{}:
	default:
	}
}

// Add starts requests that share a stream, all or none. Event.Index numbers the sequences of all. Add does not wait for
// the loop. When ctx ends the requests are dropped and the stream ends with ctx's cause. It fails with [ErrAsleep],
// [ErrFull], [ErrStopped], a [*RequestError] or a [*sample.RangeError].
func (e *Engine) Add(ctx context.Context, requests ...Request) (*Stream, error) {
	stream := newStream()
	stream.abort = func() { e.send(func(context.Context) { e.loop.drop(stream) }) }
	for i := range requests {
		r := accepted{Request: requests[i]}
		if err := e.check(&r); err != nil {
			return nil, err
		}
		if n := len(stream.sequences) + r.N; n > maxOpen { // it would never fit
			return nil, invalid("n", "%d sequences or more are asked for at once: want at most %d", n, maxOpen)
		}
		if err := e.addSequences(stream, &r); err != nil {
			return nil, err
		}
	}
	n, images := len(stream.sequences), 0
	for _, q := range stream.sequences {
		images += len(q.request.Images)
	}
	if n == 0 {
		return nil, invalid("prompt", "there is no prompt: want at least one")
	}
	stream.left = n

	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range stream.sequences { // it may have been unloaded since
		if a := q.request.adapter; a != nil && a.unloading {
			return nil, noAdapter(q.request.Adapter)
		}
	}
	switch {
	case e.stopped:
		return nil, ErrStopped
	case e.state != Awake:
		return nil, ErrAsleep
	case e.open+n > maxOpen, images > 0 && e.images+images > maxImages:
		return nil, ErrFull
	}
	for _, q := range stream.sequences {
		e.lastID++
		q.id = e.lastID
		if a := q.request.adapter; a != nil {
			a.users++
		}
	}
	e.open, e.images = e.open+n, e.images+images
	stream.bind(ctx)
	e.mailbox = append(e.mailbox, func(context.Context) { e.loop.admit(stream) })
	e.signal()
	return stream, nil
}

func (e *loop) shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.stopped = true
	mail := e.mailbox
	e.mailbox = nil
	e.mu.Unlock()
	for _, f := range mail {
		f(ctx) // new requests are admitted, and end below
	}
	e.failAll(ErrStopped)
	e.answerSleepers(ErrStopped)
	e.flush()
	e.publish()
	e.saveLast(ctx)
	return e.worker.Close()
}
