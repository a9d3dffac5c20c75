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

// beginWake begins a wake where requests wait, no instance is awake or being woken,
// and a grant allows it; it returns the instance, nil for none. Of several whose wakes take as long it is the one that has kept the conversation of
// the request that waits first. The caller holds mu.
func (f *function) beginWake(now time.Time) *route.Instance {
	if f.queue.Len() == 0 || f.waking.instance != "" || f.set.Awake(now) || slices.ContainsFunc(f.set.All(), wokenByOthers) {
		f.preferred = preferred{}
		return nil
	}
	want := f.queue.First().Want
	if f.queue.Picky() < f.queue.Len() { // any may be woken, for another one that waits
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

// preferred is a sleeper that has kept the conversation of the request that waits first, which the autoscaler is asked to wake. The zero value: none.
type preferred struct {
	instance api.InstanceID
	until    time.Time // another one that we may wake is left asleep
}

const (
	// mostAsked is how long a wake that a grant allows waits for the autoscaler to wake a sleeper that is worth more: it has free memory for it, or says no by
	// waking another.
	mostAsked = 250 * time.Millisecond
	// leastKept is how many tokens must be there for that: to compute fewer takes no longer than to ask.
	leastKept api.Tokens = 256
)

// asksFor says whether a wake that a grant allows has to wait, for the autoscaler is asked for the first of the sleepers, which has kept so much more of the
// conversation than others and has no grant: it gives one to one sleeper of a function. The caller holds mu.
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

// underway is the wake of an instance of a function that this activator began and that has not ended. There is one
// at a time; package wake knows of it only what a revocation has to wait for. The zero value: none.
type underway struct {
	instance api.InstanceID
	began    time.Time
	takes    time.Duration // as expected; 0: unknown
}

// wokenByOthers says whether i reports that it is being woken: by the autoscaler, if not by us.
func wokenByOthers(i *route.Instance) bool {
	st := i.Status()
	return st.State == api.Starting && st.Stage == api.StageWaking
}

// woke takes in the end of a call to wake an instance, which trace is of; nil: none.
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
		f.meter.Urgent() // it is the autoscaler's turn now
	}
}

// observe takes in a report of an instance.
func (f *function) observe(st api.InstanceStatus) {
	f.update(func(now time.Time) { f.learn(st, now) })
	if st.Ready() {
		f.gather()
	}
}

// update changes, under mu, what f knows of its instances, and does what follows from that.
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

// renamed says whether the adapters have changed since it was called last. The caller holds mu.
func (f *function) renamed() bool {
	names := f.adapters()
	if slices.Equal(names, f.known) {
		return false
	}
	f.known = names
	return true
}

// adapters are the names of the adapters that are declared, or that any instance has, in order. Without an instance
// that can report, the last reports count: a runtime may have adapters of its own. The caller holds mu.
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

// expected is how long it takes until an instance takes requests; 0 means now or unknown. The caller holds mu.
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

// expectedWake is how long it takes to wake a sleeping instance; 0: unknown. The caller holds mu.
func (f *function) expectedWake(st api.InstanceStatus) time.Duration {
	if f.spec.Unloaded(st) {
		return cmp.Or(f.loadTime, f.wakeTime)
	}
	return f.wakeTime
}

// stage is what a waiting request waits for, in a word, the obstacle, if there is one, and the expected time; 0: unknown.
func (f *function) stage(now time.Time) (word, why string, expected time.Duration) {
	word, why, expected = f.ownStage(now)
	if why == "" {
		if why = f.waitsFor(); why != "" {
			expected = 0 // unknown
		}
	}
	return word, why, expected
}

// startShare is the share of its stage that the start has done which the next request waits for; 0: nobody knows.
func (f *function) startShare() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if st, found := f.set.Best(); found && st.State == api.Starting {
		return st.Progress
	}
	return 0
}

// waitsFor is what f waits for outside of this process, empty if unknown. It is called without a lock.
func (f *function) waitsFor() string {
	if waits := f.a.deps.Waits; waits != nil {
		return waits(f.name)
	}
	return ""
}

// ownStage is [function.stage] by what this activator knows.
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
