package cloudevent

import (
	"context"
	"slices"
	"sync"

	"github.com/rouse-dev/rouse/api"
)

// Kept is the number of events that a [Log] keeps.
const Kept = 1000

const followerQueue = 256

// Log is a log of events in memory. It is an [api.Emitter].
type Log struct {
	receivers []func(api.Event)

	mu        sync.Mutex // guards the fields below; not held while a receiver runs
	last      []api.Event
	followers map[chan api.Event]bool
}

// NewLog returns a log that calls each receiver in the emitter's goroutine: a receiver must not block.
func NewLog(receivers ...func(api.Event)) *Log {
	return &Log{receivers: receivers, followers: map[chan api.Event]bool{}}
}

// Receive adds a receiver. It must not be called after the first event.
func (l *Log) Receive(receiver func(api.Event)) { l.receivers = append(l.receivers, receiver) }

// Emit passes e to receivers and followers. It does not block.
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
		default: // events are levels: a slow follower may lose some
		}
	}
}

// Follow calls f with the last n events, and if more is set with each new one, until ctx ends or f fails. It
// returns f's error.
func (l *Log) Follow(ctx context.Context, n int, more bool, f func(api.Event) error) error {
	fresh := make(chan api.Event, followerQueue) // never closed
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
