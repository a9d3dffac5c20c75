package activator

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// retryElsewhere is what a client is asked to wait when the activator shuts down: another takes over.
const retryElsewhere = time.Second

func shuttingDown() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeShutdown, "the server is shutting down: try again").WithRetryAfter(retryElsewhere)
}

// arrive counts a request in; it returns false where the activator takes no more. Each call needs a [Activator.leave].
func (a *Activator) arrive() bool {
	a.inFlight.Add(1)
	return !a.draining.Load()
}

// leave counts a request out.
func (a *Activator) leave() {
	if a.inFlight.Add(-1) == 0 && a.draining.Load() {
		a.idleOnce.Do(func() { close(a.idle) })
	}
}

// Drain refuses new requests with 503 from now on and blocks until those that
// wait or run have finished. If ctx ends first it refuses the requests that still wait,
// ends those that still run with an error, waits until their clients have been told,
// and returns ctx's cause. Draining can't be undone.
func (a *Activator) Drain(ctx context.Context) error {
	a.inFlight.Add(1)
	a.draining.Store(true)
	a.leave()
	select {
	case <-a.idle:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	list := make([]*function, 0, len(a.functions))
	for _, f := range a.functions {
		list = append(list, f)
	}
	a.mu.Unlock()
	for _, f := range list {
		f.refuseHeld(shuttingDown())
		f.cut(shuttingDown())
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case <-a.idle:
	case <-grace.C: // a client that does not read
	}
	return context.Cause(ctx)
}

// cutGrace is how long telling the clients of cut requests may take.
const cutGrace = time.Second
