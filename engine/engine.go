// Package engine generates text: it runs many requests through one model at
// once, one step after the other. It speaks tokens in and events out; HTTP,
// templates and names are package serve's.
//
// The life of a request:
//
//  1. Add checks it, and gives its sequences to the loop that Run is. A model that
//     is asleep, or a queue that is full, refuses at once.
//  2. Before each step the loop takes what has arrived: requests, departures,
//     sleep and wake. Then it asks package sched what to compute.
//  3. infer computes the batch and returns logits.
//  4. For each sequence that is up to date, package sample chooses a token; the
//     tokenizer makes it text; text that may begin a stop string is held back.
//  5. The event goes to the request's [Stream], which never blocks the loop.
//  6. A client that left (its context ended) is gone before the next step: its
//     blocks are free and its text is no longer computed.
//
// What it refuses: to wait for a reader; to guess (a request that does not fit
// the context is an error with both numbers); to hang (a failed step ends all
// requests in it with that error, and the next request is tried again).
//
// All methods are safe for many goroutines. Everything but the mailbox belongs
// to Run's goroutine.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// Errors that callers branch on.
var (
	ErrAsleep      = errors.New("the model is asleep or about to be: wake it with POST /wake_up")
	ErrFull        = errors.New("too many requests are waiting: try again later")
	ErrBusy        = errors.New("requests are running: drain them, or ask for it")
	ErrStopped     = errors.New("the engine stops")
	ErrInterrupted = errors.New("the model went to sleep while the request ran")
)

// Config bounds an engine. Zero fields get the defaults.
type Config struct {
	// Seats is the number of sequences that run at once; default 32.
	Seats int
	// Budget is the number of tokens in one step; default 512, at least Seats.
	Budget int
	// Queue is the number of sequences, running or waiting, beyond which Add fails with ErrFull; default 4096.
	Queue int
	// Context bounds prompt and answer together, in tokens; default and upper bound is the model's.
	Context int
}

func (c Config) withDefaults() Config {
	if c.Seats == 0 {
		c.Seats = 32
	}
	if c.Budget == 0 {
		c.Budget = max(512, c.Seats)
	}
	if c.Queue == 0 {
		c.Queue = 4096
	}
	return c
}

// Engine runs one model.
type Engine struct {
	cfg     Config
	context int
	model   model.Config
	inf     infer.Inferencer
	tok     *tokenizer.Tokenizer
	ends    []int32       // all end tokens
	post    chan struct{} // wakes the loop when the mailbox is not empty; senders post, 1 is enough

	// mu guards the mailbox and what others read. The loop holds it for moments only.
	mu      sync.Mutex
	mailbox []func(context.Context) // run by the loop in order, with its context
	state   api.State
	level   int
	stopped bool // the loop is over: nothing will run the mailbox
	open    int  // sequences accepted and not finished
	lastID  sched.ID
	stats   Stats

	// Owned by the loop.
	pool     *block.Pool
	sched    *sched.Scheduler
	live     map[sched.ID]*sequence
	batch    infer.Batch
	results  []sched.Result
	sleepers []*sleeper // callers of Sleep that wait for the drain
}

// New makes an engine for a model that is awake. The caller keeps inf and closes
// it after Run returned. Nothing runs before Run.
func New(inf infer.Inferencer, tok *tokenizer.Tokenizer, cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	count, size := inf.Blocks()
	e := &Engine{
		cfg: cfg, model: inf.Config(), inf: inf, tok: tok,
		post: make(chan struct{}, 1), state: api.Awake, live: map[sched.ID]*sequence{},
	}
	e.context = e.model.Context
	if cfg.Context > e.context {
		return nil, fmt.Errorf("a context of %d tokens is asked for, the model has %d: ask for less", cfg.Context, e.context)
	}
	if cfg.Context > 0 {
		e.context = cfg.Context
	}
	e.context = min(e.context, count*size)
	if tok.Size() > e.model.Vocab {
		return nil, fmt.Errorf("the tokenizer has %d tokens, the model knows %d: the file is inconsistent", tok.Size(), e.model.Vocab)
	}
	limits := sched.Config{Budget: cfg.Budget, Seats: cfg.Seats}
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	e.pool = block.New(count, size)
	e.sched = sched.New(limits, e.pool)
	for t := range int32(tok.Size()) {
		if tok.IsEnd(t) {
			e.ends = append(e.ends, t)
		}
	}
	return e, nil
}

// Context is the most tokens that prompt and answer may have together.
func (e *Engine) Context() int { return e.context }

// Model is the model's shape.
func (e *Engine) Model() model.Config { return e.model }

// Tokenizer is the model's tokenizer.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tok }

// Run steps until ctx ends. It may be called once, and blocks. When it returns,
// every stream and every waiting call has ended with [ErrStopped].
func (e *Engine) Run(ctx context.Context) error {
	defer e.shutdown(ctx)
	for ctx.Err() == nil {
		e.deliver(ctx)
		e.sleepIfDrained()
		batch := e.sched.Schedule()
		if batch == nil {
			e.publish()
			select {
			case <-e.post:
			case <-ctx.Done():
			}
			continue
		}
		e.step(ctx, batch)
		e.publish()
	}
	return nil
}

// deliver runs what is in the mailbox.
func (e *Engine) deliver(ctx context.Context) {
	e.mu.Lock()
	mail := e.mailbox
	e.mailbox = nil
	e.mu.Unlock()
	for _, f := range mail {
		f(ctx)
	}
}

// send puts f in the mailbox; false if nothing will ever run it.
func (e *Engine) send(f func(context.Context)) bool {
	e.mu.Lock()
	stopped := e.stopped
	if !stopped {
		e.mailbox = append(e.mailbox, f)
	}
	e.mu.Unlock()
	e.knock()
	return !stopped
}

func (e *Engine) knock() {
	select {
	case e.post <- struct{}{}:
	default:
	}
}

// Add starts requests that share a stream; most callers have one. Their
// sequences are numbered through: Event.Index counts the first request's N, then
// the next one's. All are accepted or none. Add does not wait for the loop. When
// ctx ends the requests are dropped and the stream ends with ctx's cause. It
// fails with [ErrAsleep], [ErrFull], [ErrStopped], a [*RequestError] or a
// [*sample.RangeError].
func (e *Engine) Add(ctx context.Context, requests ...Request) (*Stream, error) {
	stream := newStream()
	stream.abort = func() { e.send(func(context.Context) { e.drop(stream) }) }
	for i := range requests {
		r := requests[i]
		if err := e.check(&r); err != nil {
			return nil, err
		}
		e.addSequences(stream, &r)
	}
	n := len(stream.sequences)
	if n == 0 {
		return nil, invalid("prompt", "there is no prompt: want at least one")
	}
	stream.left = n

	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped:
		return nil, ErrStopped
	case e.state != api.Awake:
		return nil, ErrAsleep
	case e.open+n > e.cfg.Queue:
		return nil, ErrFull
	}
	for _, q := range stream.sequences {
		e.lastID++
		q.id = e.lastID
	}
	e.open += n
	stream.bind(ctx)
	e.mailbox = append(e.mailbox, func(context.Context) { e.admit(stream) })
	e.knock()
	return stream, nil
}

// shutdown ends everything that waits for the loop.
func (e *Engine) shutdown(ctx context.Context) {
	e.mu.Lock()
	e.stopped = true
	mail := e.mailbox
	e.mailbox = nil
	e.mu.Unlock()
	for _, f := range mail {
		f(ctx) // an arrival gets a place, and is ended with the others
	}
	e.failAll(ErrStopped)
	e.answerSleepers(ErrStopped)
	e.publish()
}
