package queue

import (
	"cmp"
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Stage is the stage of the start or wake that a request waits for.
type Stage struct {
	Word     string        // the stage as one word
	Why      string        // the obstacle; empty: none is known
	Expected time.Duration // until an instance accepts requests; 0: unknown
	Progress float64       // the done share of the stage of a start; 0: unknown
}

// Stage returns what f's waiting requests wait for.
func (f *Function) Stage() Stage {
	s := f.ownStage(time.Now())
	if s.Why == "" {
		if s.Why = f.waitsFor(); s.Why != "" {
			s.Expected = 0
		}
	}
	return s
}

// waitsFor returns what f waits for outside of this process, empty if unknown. It is called without a lock.
func (f *Function) waitsFor() string {
	if waits := f.q.cfg.Waits; waits != nil {
		return waits(f.Name)
	}
	return ""
}

// ownStage is [Function.Stage] by this activator's own knowledge.
func (f *Function) ownStage(now time.Time) Stage {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Stage{Expected: f.expected(now)}
	st, found := f.set.Best()
	switch {
	case f.set.Awake(now):
		s.Word = "queue"
	case f.waking.instance != "":
		s.Word = api.StepWaking
	case !found:
		s.Word = string(api.Starting)
	default:
		s.Word = cmp.Or(st.Stage, string(st.State))
	}
	if found && st.State == api.Starting {
		s.Progress = st.Progress
	}
	if st, found := f.obstacle(now); found {
		s.Why = st.Message
	}
	return s
}

// expected returns the time until an instance accepts requests; 0: now, or unknown. The caller holds mu.
func (f *Function) expected(now time.Time) time.Duration {
	if f.set.Awake(now) {
		return 0
	}
	if w := f.waking; w.instance != "" {
		return max(w.takes-now.Sub(w.began), 0)
	}
	st, found := f.set.Best()
	switch {
	case !found:
		return f.loadTime
	case st.State == api.Asleep, st.State == api.Draining:
		return f.expectedWake(st)
	case st.Unplaced():
		return 0
	case st.State == api.Starting && st.Stage == api.StepWaking:
		return max(f.wakeTime-now.Sub(st.Since), 0)
	case st.State == api.Starting:
		return max(f.loadTime-now.Sub(st.Since), 0)
	}
	return f.loadTime
}

// expectedWake returns the time to wake a sleeping instance; 0: unknown. The caller holds mu.
func (f *Function) expectedWake(st api.InstanceStatus) time.Duration {
	if f.Spec().Unloaded(st) {
		return cmp.Or(f.loadTime, f.wakeTime)
	}
	return f.wakeTime
}

// patience returns a context that ends at limit, with a refusal as its cause. Time that the function's instance
// spends waiting for a node or for its model to be fetched does not count. The caller holds mu.
func (f *Function) patience(ctx context.Context, limit, now time.Time) (_ context.Context, done context.CancelFunc) {
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

// obstacle returns the instance that waits for a node, if f waits for that. The caller holds mu.
func (f *Function) obstacle(now time.Time) (st api.InstanceStatus, found bool) {
	if f.set.Awake(now) || f.waking.instance != "" {
		return st, false
	}
	st, found = f.set.Best()
	return st, found && st.Unplaced()
}
