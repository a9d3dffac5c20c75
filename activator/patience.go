package activator

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// patience is a context of c's that ends when limit has passed, with a refusal. Time in which the function's
// instance waits for a node that is being provisioned, or for its model that is being fetched, does not count. The caller holds mu.
func (f *function) patience(c *call, limit, now time.Time) (ctx context.Context, done context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	still := f.still.at(now)
	var timer *time.Timer
	timer = time.AfterFunc(limit.Sub(now), func() {
		why := "" // asked without the lock: it is another's answer
		if waits := c.a.deps.Waits; waits != nil {
			why = waits(f.name)
		}
		now := time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		left := limit.Add(f.still.at(now) - still).Sub(now)
		switch {
		case left <= 0:
			cancel(f.timedOut(now, why))
		case f.still.since.IsZero():
			timer.Reset(left)
		default: // how much longer nobody knows
			timer.Reset(max(left, time.Second))
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// onItsWay says whether f waits for a node that is being provisioned or a model that is being fetched, and for nothing else. The caller holds mu.
func (f *function) onItsWay(now time.Time) bool {
	if f.set.Awake(now) {
		return false
	}
	for _, i := range f.set.All() {
		if i.Status().OnItsWay() {
			return true
		}
	}
	return false
}

// obstacle is the instance that no node has taken yet, where f waits for one. The caller holds mu.
func (f *function) obstacle(now time.Time) (st api.InstanceStatus, found bool) {
	if f.set.Awake(now) || f.waking != "" {
		return st, false
	}
	st, found = f.set.Best()
	return st, found && st.Unplaced()
}
