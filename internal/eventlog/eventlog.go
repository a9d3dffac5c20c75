// Package eventlog keeps the last events for later readers and passes each new one to its
// followers, through bounded queues: an emitter never waits.
//
// All methods are safe for concurrent use.
package eventlog

import (
	"context"
	"slices"
	"sync"

	"github.com/rouse-dev/rouse/api"
)

// Kept is the number of events that a [Log] keeps.
const Kept = 1000

// followerQueue is the number of events queued for a follower before it loses some.
const followerQueue = 256

// Log is a log of events in memory. It is an [api.Emitter].
type Log struct {
	receivers []func(api.Event)

	mu        sync.Mutex // guards what follows; never held while a receiver runs
	last      []api.Event
	followers map[chan api.Event]bool
}

// New makes a log that calls each of the receivers with every event, at once and
// in the emitter's goroutine: a receiver must not block.
func New(receivers ...func(api.Event)) *Log {
	return &Log{receivers: receivers, followers: map[chan api.Event]bool{}}
}

// Receive adds a receiver. It must not be called once events come.
func (l *Log) Receive(receiver func(api.Event)) { l.receivers = append(l.receivers, receiver) }

// Emit passes e on. It does not block.
func (l *Log) Emit(e api.Event) {
	for _, receive := range l.receivers {
		receive(e)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == Kept {
		l.last = slices.Delete(l.last, 0, Kept/10)
	}
	l.last = append(l.last, e)
	for f := range l.followers {
		select {
		case f <- e:
		default: // a follower that is too slow loses events; they are levels
		}
	}
}

// Follow calls f with the last n events (all that are kept, if n is larger) and,
// if more is set, with each further one until ctx ends or f fails; it returns f's error.
func (l *Log) Follow(ctx context.Context, n int, more bool, f func(api.Event) error) error {
	fresh := make(chan api.Event, followerQueue) // sent to by Emit; never closed
	l.mu.Lock()
	old := slices.Clone(l.last[max(0, len(l.last)-max(0, n)):])
	if more {
		l.followers[fresh] = true
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.followers, fresh)
		l.mu.Unlock()
	}()
	for _, e := range old {
		if err := f(e); err != nil {
			return err
		}
	}
	for more {
		select {
		case e := <-fresh:
			if err := f(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
