package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/wire"
)

// Config says how a worker is started and when it is replaced. Zero fields get the defaults.
type Config struct {
	// Launch starts a worker; required.
	Launch Launch
	// Load is what it then loads.
	Load wire.Load
	// Depth is how many batches are sent ahead of their outputs, at most; default 2.
	Depth int
	// Heartbeat is the time between two heartbeats; a worker without one for ten times
	// as long is replaced. 0: none are asked for.
	Heartbeat time.Duration
	// StepLimit is the longest time that a step may take; default a quarter of an hour.
	StepLimit time.Duration
	// Discard ends the worker in a sleep of level 2. Else it is told to sleep at that level.
	Discard bool
	// Adapter, if not nil, makes of an adapter what the worker is given; done is called when the worker has answered.
	Adapter func(a wire.Adapter, c model.Config) (given wire.Adapter, done func(), err error)
	// Backoff is how long to wait before a second attempt to replace a worker; it doubles with every
	// further one, up to a hundredfold. Default 100 ms.
	Backoff time.Duration
	// Log gets the ends and starts of workers; nil discards them.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Depth == 0 {
		c.Depth = 2
	}
	if c.StepLimit == 0 {
		c.StepLimit = 15 * time.Minute
	}
	if c.Backoff == 0 {
		c.Backoff = 100 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Event is something that happened to a worker. One field is set.
type Event struct {
	// Output is what a step gave, in the order of the batches. Give it back with [Supervisor.Release].
	Output *wire.Output
	// Lost says why the worker ended: its state is lost, and no output will come
	// for the batches that are queued. Do not queue more before Up.
	Lost error
	// Failed is why an attempt to replace it failed. Others follow.
	Failed error
	// Up: a worker that knows no sequences and has an empty cache is ready.
	Up bool
}

// ErrDown is returned by ops while there is no worker.
var ErrDown = errors.New("the worker is gone and not replaced yet: try again later")

// Supervisor keeps a worker running. Its methods are safe for many goroutines, but
// batches come from one.
type Supervisor struct {
	cfg    Config
	events chan Event // the goroutines here send, the engine receives; never closed
	frame  []byte     // the goroutine that queues

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	others sync.WaitGroup

	// link is the worker, nil while there is none. It is set with mu held, and read without where no wait is allowed
	// for another worker's start.
	link atomic.Pointer[link]

	mu       sync.Mutex // held while a worker starts
	info     wire.Info
	level    int // of sleep, as it was asked for
	adapters []wire.Adapter
	closed   bool

	restarts atomic.Int64
}

// New makes a supervisor. Nothing runs before Start.
func New(cfg Config) *Supervisor {
	cfg = cfg.withDefaults()
	s := &Supervisor{cfg: cfg, events: make(chan Event, 2*cfg.Depth+8)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start starts the first worker and waits until it has loaded the model. After an
// error nothing runs. The second call of two that succeed only answers.
func (s *Supervisor) Start(ctx context.Context) (wire.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.Load() != nil {
		return s.info, nil
	}
	if s.closed {
		return wire.Info{}, errClosed
	}
	err := s.up(ctx)
	return s.info, err
}

// Events is the channel of events. The receiver must not stop receiving while it queues batches.
func (s *Supervisor) Events() <-chan Event { return s.events }

// Depth is how many batches may be queued ahead of their outputs.
func (s *Supervisor) Depth() int { return s.cfg.Depth }

// Release gives an output's memory back.
func (s *Supervisor) Release(o *wire.Output) { outputs.Put(o) }

// up starts a worker, has it load, and begins to pass on what it sends. mu is held.
func (s *Supervisor) up(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	hello := wire.Hello{Depth: s.cfg.Depth, Heartbeat: int(s.cfg.Heartbeat / time.Millisecond)}
	l, err := start(ctx, s.cfg.Launch, hello, s.emit)
	if err != nil {
		return err
	}
	s.others.Go(func() {
		s.follow(l)
		l.Wait() //nolint:errcheck // how it ended is in the log; the caller of Close only needs it to be gone
	})
	s.others.Go(func() { l.watch(10*s.cfg.Heartbeat, s.cfg.StepLimit) })
	if err := s.prepare(ctx, l); err != nil {
		l.fail(err)
		return err
	}
	s.link.Store(l)
	s.cfg.Log.Info("worker is up", "pids", l.PIDs(), "took", time.Since(began))
	return nil
}

// prepare loads model and adapters. mu is held.
func (s *Supervisor) prepare(ctx context.Context, l *link) error {
	r, err := l.control(ctx, wire.Op{Verb: wire.OpLoad, Load: &s.cfg.Load})
	if err != nil {
		return err
	}
	switch {
	case r.Info == nil || r.Info.Blocks < 1 || r.Info.BlockSize < 1 || r.Info.Model.Vocab < 1:
		return fmt.Errorf("the worker's description of the model is invalid: %+v", r.Info)
	case s.info.Blocks != 0 && (r.Info.Model.Vocab != s.info.Model.Vocab || r.Info.Blocks < s.info.Blocks || r.Info.BlockSize != s.info.BlockSize):
		return fmt.Errorf("the model is another one now: %+v, it was %+v", r.Info, s.info)
	case s.info.Blocks == 0:
		s.info = *r.Info
	}
	for i := range s.adapters {
		if err := s.give(ctx, l, s.adapters[i], r.Info.Model); err != nil {
			return fmt.Errorf("load adapter %s again: %w", s.adapters[i].Name, err)
		}
	}
	return nil
}

// emit sends an event to the engine.
func (s *Supervisor) emit(e Event) {
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

// follow receives from a worker until it ends, and replaces it. The events that it sends
// are sent with mu held, so that they are in order.
func (s *Supervisor) follow(l *link) {
	err := l.receive()
	s.mu.Lock()
	mine := s.link.Load() == l // else it never came up, or was told to end
	if mine {
		s.link.Store(nil)
	}
	needed := mine && s.level == 0 && s.ctx.Err() == nil
	if needed {
		s.emit(Event{Lost: err})
	}
	s.mu.Unlock()
	if mine && s.ctx.Err() == nil {
		s.cfg.Log.Error("worker is lost", "pids", l.PIDs(), "error", err)
	}
	if needed {
		s.replace()
	}
}

// replace starts workers until one runs, or none is needed.
func (s *Supervisor) replace() {
	wait := s.cfg.Backoff
	for {
		s.mu.Lock()
		if s.link.Load() != nil || s.level > 0 || s.ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		s.restarts.Add(1)
		err := s.up(s.ctx)
		if err == nil {
			s.emit(Event{Up: true})
		} else {
			s.emit(Event{Failed: err})
		}
		s.mu.Unlock()
		if err == nil {
			return
		}
		s.cfg.Log.Error("worker can't be replaced", "error", err, "again in", wait)
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-s.ctx.Done():
			pause.Stop()
		}
		wait = min(2*wait, 100*s.cfg.Backoff)
	}
}

// Queue sends a batch to the worker, and keeps nothing of it. It may wait for the worker to read.
// If there is no worker nothing happens: [Event.Lost] is on its way.
func (s *Supervisor) Queue(b *wire.Batch) {
	l := s.link.Load()
	if l == nil {
		return
	}
	s.frame = wire.AppendBatch(s.frame[:0], b)
	l.queue(b.Step, s.frame)
}

// Fail ends the worker because what it answers can't be. It is replaced.
func (s *Supervisor) Fail(err error) {
	if l := s.link.Load(); l != nil {
		l.fail(err)
	}
}

// control does an op, if there is a worker.
func (s *Supervisor) control(ctx context.Context, op wire.Op) (wire.Reply, error) {
	l := s.link.Load()
	if l == nil {
		return wire.Reply{}, ErrDown
	}
	return l.control(ctx, op)
}

// Sleep gives the model's memory back: level 1 or 2. No batch may be queued. Level 1 keeps the contents of
// blocks, if the worker can. If it fails the worker is awake.
func (s *Supervisor) Sleep(ctx context.Context, level int, keep ...int32) error {
	s.mu.Lock()
	l, before := s.link.Load(), s.level
	s.level = level
	if l != nil && level == 2 && s.cfg.Discard {
		s.link.Store(nil)
		s.mu.Unlock()
		l.fail(errClosed)
		l.Wait() //nolint:errcheck // it was killed, and that is how it ended
		return nil
	}
	s.mu.Unlock()
	if l == nil {
		return nil // nothing is there that could take memory
	}
	_, err := l.control(ctx, wire.Op{Verb: wire.OpSleep, Level: level, Keep: keep})
	if err != nil && !l.isOver() { // else the worker is gone, and its memory with it
		s.mu.Lock()
		s.level = before
		s.mu.Unlock()
		return err
	}
	return nil
}

// Wake makes the worker ready, which knows no sequences then. kept says that it is the one that fell asleep, and has
// what it was told to keep. If it fails the worker sleeps as before, and nothing is kept.
func (s *Supervisor) Wake(ctx context.Context) (kept bool, err error) {
	l := s.link.Load()
	if l != nil {
		_, err := l.control(ctx, wire.Op{Verb: wire.OpWake})
		if err != nil && !l.isOver() {
			return false, err
		}
		kept = err == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l == nil || l.isOver() { // it ended while it slept
		kept = false
		s.link.Store(nil)
		if err := s.up(ctx); err != nil {
			return false, err
		}
	}
	s.level = 0
	return kept, nil
}

// SaveBlocks has the worker write cache blocks to a file that exists, and returns their sums.
func (s *Supervisor) SaveBlocks(ctx context.Context, f wire.File) ([]uint64, error) {
	r, err := s.control(ctx, wire.Op{Verb: wire.OpSaveBlocks, File: &f})
	if err == nil && len(r.Sums) != len(f.Blocks) {
		err = fmt.Errorf("save %d blocks: the worker has written %d", len(f.Blocks), len(r.Sums))
	}
	return r.Sums, err
}

// LoadBlocks has the worker read cache blocks from a file. If it fails their contents are of no use.
func (s *Supervisor) LoadBlocks(ctx context.Context, f wire.File) error {
	_, err := s.control(ctx, wire.Op{Verb: wire.OpLoadBlocks, File: &f})
	return err
}

// LoadAdapter gives the worker an adapter, and every worker after it.
func (s *Supervisor) LoadAdapter(ctx context.Context, a wire.Adapter) error {
	l := s.link.Load()
	if l == nil {
		return ErrDown
	}
	s.mu.Lock()
	shape := s.info.Model
	s.mu.Unlock()
	if err := s.give(ctx, l, a, shape); err != nil {
		return err
	}
	s.mu.Lock()
	s.adapters = append(s.adapters, a)
	s.mu.Unlock()
	return nil
}

// UnloadAdapter takes it away again. If there is no worker the next one will not get it.
func (s *Supervisor) UnloadAdapter(ctx context.Context, id int32) error {
	s.mu.Lock()
	s.adapters = slices.DeleteFunc(s.adapters, func(a wire.Adapter) bool { return a.ID == id })
	s.mu.Unlock()
	_, err := s.control(ctx, wire.Op{Verb: wire.OpUnloadAdapter, Adapter: &wire.Adapter{ID: id}})
	if errors.Is(err, ErrDown) {
		return nil
	}
	return err
}

// Memory is how many bytes the model takes; 0 if there is no worker.
func (s *Supervisor) Memory(ctx context.Context) (int64, error) {
	r, err := s.control(ctx, wire.Op{Verb: wire.OpStats})
	if errors.Is(err, ErrDown) {
		return 0, nil
	}
	return r.Memory, err
}

// Restarts is how many attempts there were to replace a worker.
func (s *Supervisor) Restarts() int { return int(s.restarts.Load()) }

// PIDs are the processes of the worker, none if it lives in this one or is gone.
func (s *Supervisor) PIDs() []int {
	l := s.link.Load()
	if l == nil {
		return nil
	}
	return l.PIDs()
}

// Close ends the worker and waits until everything is gone. Twice is fine.
func (s *Supervisor) Close() error {
	s.cancel()
	s.mu.Lock()
	l := s.link.Swap(nil)
	s.closed = true
	s.mu.Unlock()
	if l != nil {
		l.fail(errClosed)
	}
	s.others.Wait()
	return nil
}
