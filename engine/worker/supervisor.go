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
)

// Config configures how a worker is started and replaced.
type Config struct {
	Launch Launch
	Load   Load
	// Depth is the most batches ahead of outputs; 0: 2.
	Depth int
	// Heartbeat is the interval; a worker without one for ten intervals is replaced. 0: none.
	Heartbeat time.Duration
	// StepLimit is per step; 0: 15 minutes.
	StepLimit time.Duration
	// Discard ends the worker in a sleep of level 2.
	Discard bool
	// Adapter, if not nil, converts an adapter; done is called after the worker's answer.
	Adapter func(a Adapter, c model.Config) (given Adapter, done func(), err error)
	// Backoff is the wait after a failed attempt to replace a worker; it doubles up to a factor of 100. 0: 100 ms.
	Backoff time.Duration
	// Log may be nil.
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

// Event has one field set.
type Event struct {
	// Output comes in the order of the batches. Return it with [Supervisor.Release].
	Output *Output
	// Lost is why the worker ended. Queued batches get no output. Queue no more before Up.
	Lost error
	// Failed is why it was not replaced. More attempts follow.
	Failed error
	// Up: a new worker is ready, without sequences or cache.
	Up bool
}

// ErrDown means that there is no worker.
var ErrDown = errors.New("the worker is gone and not replaced yet: try again later")

// Supervisor keeps a worker running. It is safe for many goroutines, but one queues batches.
type Supervisor struct {
	cfg    Config
	events chan Event // the worker's goroutines send; never closed
	frame  []byte     // owned by the goroutine that queues

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	others sync.WaitGroup

	// link is nil while there is no worker. It is written with mu held, and read without by those that must not wait
	// for a start.
	link atomic.Pointer[link]

	mu       sync.Mutex // held while a worker starts
	info     Info
	level    int // of sleep, as requested
	adapters []Adapter
	closed   bool

	restarts atomic.Int64
}

// New runs nothing before Start.
func New(cfg Config) *Supervisor {
	cfg = cfg.withDefaults()
	s := &Supervisor{cfg: cfg, events: make(chan Event, 2*cfg.Depth+8)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start blocks until the first worker has loaded the model. After an error nothing runs. If a worker runs, it returns
// its info.
func (s *Supervisor) Start(ctx context.Context) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.Load() != nil {
		return s.info, nil
	}
	if s.closed {
		return Info{}, errClosed
	}
	err := s.up(ctx)
	return s.info, err
}

// Events must be received from while batches are queued.
func (s *Supervisor) Events() <-chan Event { return s.events }

// Depth is the most batches ahead of outputs.
func (s *Supervisor) Depth() int { return s.cfg.Depth }

// Release returns an output to its pool.
func (s *Supervisor) Release(o *Output) { outputs.Put(o) }

// up starts a worker. mu must be held.
func (s *Supervisor) up(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	hello := Hello{Depth: s.cfg.Depth, Heartbeat: int(s.cfg.Heartbeat / time.Millisecond)}
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

// mu must be held.
func (s *Supervisor) prepare(ctx context.Context, l *link) error {
	r, err := l.control(ctx, Op{Verb: OpLoad, Load: &s.cfg.Load})
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

func (s *Supervisor) emit(e Event) {
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

// follow receives until the worker ends, and replaces it. It sends events with mu held: they are in order.
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

// Queue keeps no reference to the batch. It may block until the worker reads. Without a worker it does nothing:
// [Event.Lost] is on its way.
func (s *Supervisor) Queue(b *Batch) {
	l := s.link.Load()
	if l == nil {
		return
	}
	s.frame = AppendBatch(s.frame[:0], b)
	l.queue(b.Step, s.frame)
}

// Fail ends a worker after an invalid answer. It is replaced.
func (s *Supervisor) Fail(err error) {
	if l := s.link.Load(); l != nil {
		l.fail(err)
	}
}

func (s *Supervisor) control(ctx context.Context, op Op) (Reply, error) {
	l := s.link.Load()
	if l == nil {
		return Reply{}, ErrDown
	}
	return l.control(ctx, op)
}

// Sleep frees the model's memory. No batch may be queued. Level 1 keeps blocks, if the worker can. If Sleep fails the
// worker is awake.
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
		return nil // no memory to free
	}
	_, err := l.control(ctx, Op{Verb: OpSleep, Level: level, Keep: keep})
	if err != nil && !l.isOver() { // else the worker and its memory are gone
		s.mu.Lock()
		s.level = before
		s.mu.Unlock()
		return err
	}
	return nil
}

// Wake makes the worker ready, without sequences. kept: the kept blocks are there. If it fails the worker sleeps, and
// nothing is kept.
func (s *Supervisor) Wake(ctx context.Context) (kept bool, err error) {
	l := s.link.Load()
	if l != nil {
		_, err := l.control(ctx, Op{Verb: OpWake})
		if err != nil && !l.isOver() {
			return false, err
		}
		kept = err == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l == nil || l.isOver() { // it ended during the sleep
		kept = false
		s.link.Store(nil)
		if err := s.up(ctx); err != nil {
			return false, err
		}
	}
	s.level = 0
	return kept, nil
}

// SaveBlocks writes cache blocks to an existing file, and returns their checksums.
func (s *Supervisor) SaveBlocks(ctx context.Context, f File) ([]uint64, error) {
	r, err := s.control(ctx, Op{Verb: OpSaveBlocks, File: &f})
	if err == nil && len(r.Sums) != len(f.Blocks) {
		err = fmt.Errorf("save %d blocks: the worker has written %d", len(f.Blocks), len(r.Sums))
	}
	return r.Sums, err
}

// LoadBlocks reads cache blocks. If it fails their contents are undefined.
func (s *Supervisor) LoadBlocks(ctx context.Context, f File) error {
	_, err := s.control(ctx, Op{Verb: OpLoadBlocks, File: &f})
	return err
}

// LoadAdapter loads an adapter, also into every replacement. If ctx ends it still waits for the worker, and unloads.
func (s *Supervisor) LoadAdapter(ctx context.Context, a Adapter) error {
	l := s.link.Load()
	if l == nil {
		return ErrDown
	}
	s.mu.Lock()
	shape := s.info.Model
	s.mu.Unlock()
	// A worker that has the op runs it even if nobody waits.
	if err := s.give(context.WithoutCancel(ctx), l, a, shape); err != nil {
		return err
	}
	if ctx.Err() != nil {
		_, err := l.control(context.WithoutCancel(ctx), Op{Verb: OpUnloadAdapter, Adapter: &Adapter{ID: a.ID}})
		return errors.Join(context.Cause(ctx), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.link.Load(); now != nil && now != l { // its successor has started without the adapter
		return ErrDown
	}
	s.adapters = append(s.adapters, a)
	return nil
}

// UnloadAdapter needs no worker.
func (s *Supervisor) UnloadAdapter(ctx context.Context, id int32) error {
	s.mu.Lock()
	s.adapters = slices.DeleteFunc(s.adapters, func(a Adapter) bool { return a.ID == id })
	s.mu.Unlock()
	_, err := s.control(ctx, Op{Verb: OpUnloadAdapter, Adapter: &Adapter{ID: id}})
	if errors.Is(err, ErrDown) {
		return nil
	}
	return err
}

// Memory returns the model's bytes; 0 without a worker.
func (s *Supervisor) Memory(ctx context.Context) (int64, error) {
	r, err := s.control(ctx, Op{Verb: OpStats})
	if errors.Is(err, ErrDown) {
		return 0, nil
	}
	return r.Memory, err
}

// Restarts returns the number of attempts to replace a worker.
func (s *Supervisor) Restarts() int { return int(s.restarts.Load()) }

// PIDs returns none if the worker runs in this process or is gone.
func (s *Supervisor) PIDs() []int {
	l := s.link.Load()
	if l == nil {
		return nil
	}
	return l.PIDs()
}

// Close blocks until all goroutines have ended. It may be called twice.
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
