package activator

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// retryElsewhere is the Retry-After during shutdown: another activator takes over.
const retryElsewhere = time.Second

func shuttingDown() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeShutdown, "the server is shutting down: try again").WithRetryAfter(retryElsewhere)
}

// arrive counts a request in, and returns false if the activator is draining. Each call needs a matching
// [Activator.leave].
func (a *Activator) arrive() bool {
	a.inFlight.Add(1)
	return !a.draining.Load()
}

func (a *Activator) leave() {
	if a.inFlight.Add(-1) == 0 && a.draining.Load() {
		a.idleOnce.Do(func() { close(a.idle) })
	}
}

// Drain refuses new requests with 503 from now on and blocks until the waiting and running ones have finished. If ctx
// ends first, it refuses the waiting requests and ends the running ones with an error. It then waits until their
// clients have been told, and returns ctx's cause. Draining can't be undone.
func (a *Activator) Drain(ctx context.Context) error {
	a.inFlight.Add(1)
	a.draining.Store(true)
	a.leave()
	select {
	case <-a.idle:
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
	case <-a.idle:
	case <-grace.C: // for a client that does not read
	}
	return context.Cause(ctx)
}

// cutGrace bounds the time for telling the clients of cut requests.
const cutGrace = time.Second
