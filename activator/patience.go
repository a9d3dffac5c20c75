package activator

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// patience returns a context that ends at limit, with a refusal as its cause. Time that the function's instance
// spends waiting for a node or for its model to be fetched does not count. The caller holds mu.
func (f *function) patience(ctx context.Context, limit, now time.Time) (_ context.Context, done context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	paused := f.paused.at(now)
	var timer *time.Timer
	timer = time.AfterFunc(limit.Sub(now), func() {
		why := f.waitsFor()
		now := time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		left := limit.Add(f.paused.at(now) - paused).Sub(now)
		switch {
		case left <= 0:
			cancel(f.timedOut(now, why))
		case f.paused.since.IsZero():
			timer.Reset(left)
		default: // the remaining time is unknown
			timer.Reset(max(left, time.Second))
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// onItsWay reports whether f waits only for a node, or for its model to be fetched. The caller holds mu.
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

// obstacle returns the instance that waits for a node, if f waits for that. The caller holds mu.
func (f *function) obstacle(now time.Time) (st api.InstanceStatus, found bool) {
	if f.set.Awake(now) || f.waking.instance != "" {
		return st, false
	}
	st, found = f.set.Best()
	return st, found && st.Unplaced()
}
