package activator

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// retryElsewhere is the Retry-After during shutdown: another activator takes over.
const retryElsewhere = time.Second

func shuttingDown() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeShutdown, "the server is shutting down: try again").WithRetryAfter(retryElsewhere)
}

// flight counts the requests between their first line and last byte.
type flight struct {
	n        atomic.Int64
	draining atomic.Bool
	// idle is closed, once, when the activator drains and no request is in flight.
	idle     chan struct{}
	idleOnce sync.Once
}

// arrive counts a request in, and returns false if the activator is draining. Each call needs a matching
// [flight.leave].
func (f *flight) arrive() bool {
	f.n.Add(1)
	return !f.draining.Load()
}

func (f *flight) leave() {
	if f.n.Add(-1) == 0 && f.draining.Load() {
		f.idleOnce.Do(func() { close(f.idle) })
	}
}

// Drain refuses new requests with 503 from now on and blocks until the waiting and running ones have finished. If ctx
// ends first, it refuses the waiting requests and ends the running ones with an error. It then waits until their
// clients have been told, and returns ctx's cause. Draining can't be undone.
func (a *Activator) Drain(ctx context.Context) error {
	a.inFlight.arrive()
	a.inFlight.draining.Store(true)
	a.inFlight.leave()
	select {
	case <-a.inFlight.idle:
		return nil
	case <-ctx.Done():
	}
	for _, f := range a.All() {
		f.RefuseWaiting(shuttingDown())
		f.EndAll(shuttingDown())
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case <-a.inFlight.idle:
	case <-grace.C: // for a client that does not read
	}
	return context.Cause(ctx)
}

// cutGrace bounds the time for telling the clients of cut requests.
const cutGrace = time.Second
