package activator

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/activator/wake"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// beginWake begins a wake if requests wait, no instance is awake or being woken, and a grant allows it. It returns
// the instance, or nil. Among instances that wake equally fast it prefers the one that kept the conversation of the
// first waiting request. The caller holds mu.
func (f *function) beginWake(now time.Time) *route.Instance {
	if f.queue.Len() == 0 || f.waking.instance != "" || f.set.Awake(now) || slices.ContainsFunc(f.set.All(), wokenByOthers) {
		f.preferred = preferred{}
		return nil
	}
	want := f.queue.First().Want
	if f.queue.Picky() < f.queue.Len() { // wake any, for another waiting request
		want.Only = nil
	}
	sleepers, kept := f.set.Asleep(now, want)
	if f.asksFor(sleepers, kept, now) {
		return nil
	}
	for _, i := range sleepers {
		id := i.ID
		st := i.Status()
		trace := f.trace
		out, retry := f.a.wakes.Begin(id, st.Endpoint, f.spec.RiseTimeout(f.spec.Unloaded(st)), f.trace.calls(), func(call *waketrace.Span, st api.InstanceStatus, err error) {
			ended := time.Now()
			f.woke(id, st, err, trace)
			trace.called(call, st, err, ended)
		})
		switch out {
		case wake.Begun:
			f.waking = underway{instance: id, began: now, takes: f.expectedWake(st)}
			trace.begun()
			return i
		case wake.UnderWay:
			return nil
		case wake.Paused:
			f.callAgain(retry, now)
		}
	}
	return nil
}

// preferred is a sleeping instance that kept the conversation of the first waiting request, and which the autoscaler
// is asked to wake. The zero value: none.
type preferred struct {
	instance api.InstanceID
	until    time.Time // until then no other instance is woken
}

const (
	// mostAsked is how long a granted wake waits for the autoscaler to wake a better instance instead. The autoscaler
	// has free memory for it, or declines by waking another.
	mostAsked = 250 * time.Millisecond
	// leastKept is how many kept tokens justify this: computing fewer takes no longer than asking.
	leastKept api.Tokens = 256
)

// asksFor reports whether a granted wake has to wait because the autoscaler is asked for the first sleeper. That one
// kept much more of the conversation than others and has no grant: the autoscaler grants one sleeper per function.
// The caller holds mu.
func (f *function) asksFor(sleepers []*route.Instance, kept api.Tokens, now time.Time) bool {
	if kept < leastKept || f.sees() != nil || f.a.wakes.Granted(sleepers[0].ID) {
		f.preferred = preferred{}
		return false
	}
	first := sleepers[0].ID
	if f.preferred.instance != first {
		f.preferred = preferred{first, now.Add(mostAsked)}
	}
	if !now.Before(f.preferred.until) || !slices.ContainsFunc(sleepers, func(i *route.Instance) bool { return f.a.wakes.Granted(i.ID) }) {
		return false
	}
	f.callAgain(f.preferred.until, now)
	return true
}

// underway is the wake of an instance that this activator began and that has not ended. A function has at most one;
// package wake only knows what a revocation must wait for. The zero value: none.
type underway struct {
	instance api.InstanceID
	began    time.Time
	takes    time.Duration // expected duration; 0: unknown
}

// wokenByOthers reports whether i reports that it is being woken: by the autoscaler, if not by us.
func wokenByOthers(i *route.Instance) bool {
	st := i.Status()
	return st.State == api.Starting && st.Stage == api.StageWaking
}

// woke records the end of a call to wake an instance; trace is nil if the call is not traced.
func (f *function) woke(id api.InstanceID, st api.InstanceStatus, err error, trace *wakeTrace) {
	f.metrics.Woke("direct", err)
	if err != nil {
		f.a.log.Warn("wake failed", "function", f.name, "instance", id, "error", err)
	}
	f.update(func(now time.Time) {
		f.waking = underway{}
		if err == nil {
			trace.wokenBy(id)
			f.learn(st, now)
		}
	})
	if err == nil {
		f.gather()
	} else {
		f.meter.Urgent() // the autoscaler has to act now
	}
}

// observe applies an instance's report.
func (f *function) observe(st api.InstanceStatus) {
	f.update(func(now time.Time) { f.learn(st, now) })
	if st.Ready() {
		f.gather()
	}
}

// update changes f's instances under mu, and then acts on the change.
func (f *function) update(change func(now time.Time)) {
	now := time.Now()
	f.mu.Lock()
	change(now)
	f.beginWake(now)
	renamed := f.renamed()
	f.mu.Unlock()
	f.dispatch()
	if renamed {
		f.a.index()
	}
}

// renamed reports whether the adapters have changed since its last call. The caller holds mu.
func (f *function) renamed() bool {
	names := f.adapters()
	if slices.Equal(names, f.known) {
		return false
	}
	f.known = names
	return true
}

// adapters returns the sorted names of the adapters that are declared, or that any instance has. If no instance can
// report, the last reports count: a runtime may have built-in adapters. The caller holds mu.
func (f *function) adapters() []api.ModelName {
	var names []api.ModelName
	for _, a := range f.spec.Runtime.Adapters {
		names = append(names, a.Name)
	}
	var seen []api.ModelName
	said := false
	for _, i := range f.set.All() {
		st := i.Status()
		seen = append(append(seen, st.Adapters...), st.Standby...)
		said = said || st.State == api.Awake || st.State == api.Asleep || st.State == api.Draining
	}
	if said || len(seen) > 0 {
		f.seen = seen
	}
	names = append(names, f.seen...)
	slices.Sort(names)
	return slices.Compact(names)
}

// learn applies a report. The caller holds mu.
func (f *function) learn(st api.InstanceStatus, now time.Time) {
	if !f.set.Observe(st, now) {
		return
	}
	if st.WakeTime > 0 {
		f.wakeTime = st.WakeTime
	}
	if st.LoadTime > 0 {
		f.loadTime = st.LoadTime
	}
	if st.Ready() {
		f.trace.sawAwake(now)
		f.failed = nil
	}
	f.unavailable.set(!f.set.Awake(now), now)
	f.paused.set(f.onItsWay(now), now)
}

// expected returns the time until an instance accepts requests; 0: now, or unknown. The caller holds mu.
func (f *function) expected(now time.Time) time.Duration {
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
	case st.State == api.Starting && st.Stage == api.StageWaking:
		return max(f.wakeTime-now.Sub(st.Since), 0)
	case st.State == api.Starting:
		return max(f.loadTime-now.Sub(st.Since), 0)
	}
	return f.loadTime
}

// expectedWake returns the time to wake a sleeping instance; 0: unknown. The caller holds mu.
func (f *function) expectedWake(st api.InstanceStatus) time.Duration {
	if f.spec.Unloaded(st) {
		return cmp.Or(f.loadTime, f.wakeTime)
	}
	return f.wakeTime
}

// stage returns, for a waiting request, the current stage as one word, the obstacle, if any, and the expected time;
// 0: unknown.
func (f *function) stage(now time.Time) (word, why string, expected time.Duration) {
	word, why, expected = f.ownStage(now)
	if why == "" {
		if why = f.waitsFor(); why != "" {
			expected = 0 // unknown
		}
	}
	return word, why, expected
}

// startShare returns the done share of the current stage of the start that the next request waits for; 0: unknown.
func (f *function) startShare() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if st, found := f.set.Best(); found && st.State == api.Starting {
		return st.Progress
	}
	return 0
}

// waitsFor returns what f waits for outside of this process, empty if unknown. It is called without a lock.
func (f *function) waitsFor() string {
	if waits := f.a.deps.Waits; waits != nil {
		return waits(f.name)
	}
	return ""
}

// ownStage is [function.stage] by this activator's own knowledge.
func (f *function) ownStage(now time.Time) (word, why string, expected time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	expected = f.expected(now)
	st, found := f.set.Best()
	switch {
	case f.set.Awake(now):
		word = "queue"
	case f.waking.instance != "":
		word = api.StageWaking
	case !found:
		word = string(api.Starting)
	case st.Stage != "":
		word = st.Stage
	default:
		word = string(st.State)
	}
	if st, found := f.obstacle(now); found {
		why = st.Message
	}
	return word, why, expected
}
