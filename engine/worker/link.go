package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Running is the engine's end of a started worker.
type Running interface {
	Conn
	// Kill may be called twice.
	Kill()
	// Wait returns an error if the worker ended abnormally.
	Wait() error
	// PIDs returns none if the worker runs in this process.
	PIDs() []int
}

// Launch starts a worker without a model. ctx bounds the start only.
type Launch func(ctx context.Context) (Running, error)

type link struct {
	Running
	emit func(Event)

	mu       sync.Mutex
	err      error // set once
	nextOp   uint64
	waiting  map[uint64]chan Reply // by op ID; a channel has room for its reply
	heard    time.Time             // of the last frame
	began    time.Time             // of the current step, as far as known
	expected []uint64              // steps not answered, in order
	over     chan struct{}         // closed with err set
}

var (
	errSilent = errors.New("the worker is silent")
	errHung   = errors.New("the worker hangs in a step")
	errClosed = errors.New("the worker was told to end")
	errGone   = errors.New("the worker ended")
)

func start(ctx context.Context, launch Launch, hello Hello, emit func(Event)) (*link, error) {
	r, err := launch(ctx)
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	l := &link{Running: r, emit: emit, waiting: map[uint64]chan Reply{}, heard: time.Now(), over: make(chan struct{})}
	unwatch := context.AfterFunc(ctx, r.Kill)
	defer unwatch()
	if err := l.greet(hello); err != nil {
		r.Kill()
		if status := r.Wait(); status != nil {
			if errors.Is(err, errGone) {
				err = errGone // whichever call noticed it
			}
			err = fmt.Errorf("%w: %w", err, status)
		}
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return l, nil
}

func (l *link) greet(hello Hello) error {
	hello.Protocol = Protocol
	if err := SendJSON(l, KindHello, hello); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	kind, payload, err := l.Receive()
	if err == io.EOF {
		return errGone
	}
	if err != nil {
		return err
	}
	var theirs Hello
	if kind != KindHello || DecodeJSON(payload, &theirs) != nil {
		return fmt.Errorf("its first frame, of kind %d, is no hello", kind)
	}
	if theirs.Protocol != Protocol {
		return fmt.Errorf("its protocol version is %d, the engine's is %d: use the same version for both", theirs.Protocol, Protocol)
	}
	return nil
}

// fail ends the worker. Only the first call counts.
func (l *link) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
		close(l.over)
	}
	l.mu.Unlock()
	if first {
		l.Kill()
	}
}

// receive returns why the worker ended.
func (l *link) receive() error {
	for {
		kind, payload, err := l.Receive()
		if err == nil {
			err = l.take(kind, payload)
		} else if err == io.EOF {
			err = errGone
		}
		if err == nil {
			continue
		}
		l.fail(err)
		if !errors.Is(l.err, errGone) {
			return l.err
		}
		if exit := l.Wait(); exit != nil {
			return fmt.Errorf("%w: %w", l.err, exit)
		}
		return l.err
	}
}

func (l *link) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

func (l *link) take(kind Kind, payload []byte) error {
	l.mu.Lock()
	l.heard = time.Now()
	l.mu.Unlock()
	switch kind {
	case KindHeartbeat:
		return nil
	case KindOutput:
		out := outputs.Get().(*Output)
		if err := DecodeOutput(payload, out); err != nil {
			return err
		}
		if err := l.answered(out.Step); err != nil {
			return err
		}
		l.emit(Event{Output: out})
		return nil
	case KindReply:
		var r Reply
		if err := DecodeJSON(payload, &r); err != nil {
			return err
		}
		l.mu.Lock()
		ch := l.waiting[r.ID]
		delete(l.waiting, r.ID)
		l.mu.Unlock()
		if ch != nil {
			ch <- r
		}
		return nil
	}
	return fmt.Errorf("the worker sends a frame of kind %d", kind)
}

var outputs = sync.Pool{New: func() any { return new(Output) }}

func (l *link) answered(step uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.expected) == 0 || l.expected[0] != step {
		return fmt.Errorf("the worker answers step %d, and the steps %d are expected", step, l.expected)
	}
	l.expected = append(l.expected[:0], l.expected[1:]...)
	l.began = time.Now()
	return nil
}

// If queue fails, Event.Lost will come.
func (l *link) queue(step uint64, payload []byte) {
	l.mu.Lock()
	if len(l.expected) == 0 {
		l.began = time.Now()
	}
	l.expected = append(l.expected, step)
	l.mu.Unlock()
	if err := l.Send(KindBatch, payload); err != nil {
		l.fail(fmt.Errorf("%w: %w", errGone, err))
	}
}

func (l *link) control(ctx context.Context, op Op) (Reply, error) {
	ch := make(chan Reply, 1)
	l.mu.Lock()
	if l.err != nil {
		err := l.err
		l.mu.Unlock()
		return Reply{}, err
	}
	l.nextOp++
	op.ID = l.nextOp
	l.waiting[op.ID] = ch
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, op.ID)
		l.mu.Unlock()
	}()
	if err := SendJSON(l, KindOp, op); err != nil {
		l.fail(fmt.Errorf("%w: %w", errGone, err))
		return Reply{}, fmt.Errorf("%s: %w", op.Verb, err)
	}
	select {
	case r := <-ch:
		if r.Error != "" {
			return r, &OpError{Message: r.Error}
		}
		return r, nil
	case <-l.over:
		return Reply{}, fmt.Errorf("%s: %w", op.Verb, l.err)
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("%s: %w", op.Verb, context.Cause(ctx))
	}
}

// OpError is the worker's error for an op.
type OpError struct{ Message string }

// Error implements error.
func (e *OpError) Error() string { return e.Message }

// watch ends the worker if it is silent (0: never) or hangs in a step. Silence is counted in ticks: while this process
// gets no CPU time it does not read the worker's frames either.
func (l *link) watch(silence, step time.Duration) {
	every := step / 8
	if silence > 0 {
		every = min(every, silence/4)
	}
	every = max(every, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	heard, quiet := time.Time{}, time.Duration(0)
	for {
		select {
		case <-l.over:
			return
		case now := <-tick.C:
			last, err := l.late(now, step)
			if quiet += every; !last.Equal(heard) {
				heard, quiet = last, 0
			}
			if silence > 0 && quiet > silence {
				err = fmt.Errorf("%w: nothing came from it for %v", errSilent, now.Sub(heard).Round(time.Millisecond))
			}
			if err != nil {
				l.fail(err)
				return
			}
		}
	}
}

func (l *link) late(now time.Time, step time.Duration) (heard time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := now.Sub(l.began); len(l.expected) > 0 && d > step {
		err = fmt.Errorf("%w: step %d takes %v already, %v are allowed", errHung, l.expected[0], d.Round(time.Millisecond), step)
	}
	return l.heard, err
}
