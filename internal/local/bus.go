package local

import (
	"context"
	"slices"
	"sync"

	"github.com/rouse-dev/rouse/api"
)

// bus passes each event on to everybody who is to know: at once to the
// receivers, which must not block, and through bounded queues to followers.
// It keeps the last events for those who ask later.
type bus struct {
	receivers []func(api.Event)

	mu        sync.Mutex // guards what follows; never held while a receiver runs
	last      []api.Event
	followers map[chan api.Event]bool
}

// Numbers of events: kept for those who ask later, and queued for a follower
// before it loses some.
const (
	keptEvents    = 1000
	followerQueue = 256
)

func newBus() *bus { return &bus{followers: map[chan api.Event]bool{}} }

// Emit passes e on. It is an [api.Emitter].
func (b *bus) Emit(e api.Event) {
	for _, receive := range b.receivers {
		receive(e)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.last) == keptEvents {
		b.last = slices.Delete(b.last, 0, keptEvents/10)
	}
	b.last = append(b.last, e)
	for f := range b.followers {
		select {
		case f <- e:
		default: // a follower that is too slow loses events; they are levels
		}
	}
}

// follow calls f with the last n events and, if more is set, with each further
// one until ctx ends or f fails; it returns f's error.
func (b *bus) follow(ctx context.Context, n int, more bool, f func(api.Event) error) error {
	fresh := make(chan api.Event, followerQueue) // sent to by Emit; never closed
	b.mu.Lock()
	old := slices.Clone(b.last[max(0, len(b.last)-n):])
	if more {
		b.followers[fresh] = true
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.followers, fresh)
		b.mu.Unlock()
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
