package queue

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// beginWake begins a wake if requests wait, no instance is awake or being woken, and a grant allows it. It returns
// the instance, or nil. Among instances that wake equally fast it prefers the one that kept the conversation of the
// first waiting request. The caller holds mu.
func (f *Function) beginWake(now time.Time) *route.Instance {
	if f.queue.Len() == 0 || f.waking.instance != "" || f.set.Awake(now) || slices.ContainsFunc(f.set.All(), wokenByOthers) {
		f.preferred = preferred{}
		return nil
	}
	want := f.queue.First().Want
	if f.queue.picky < f.queue.Len() { // wake any, for another waiting request
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
		out, retry := f.q.grants.begin(id, st.Endpoint, f.Spec().RiseTimeout(f.Spec().Unloaded(st)), f.trace.calls(), func(call *waketrace.Span, st api.InstanceStatus, err error) {
			ended := time.Now()
			f.woke(id, st, err, trace)
			trace.called(call, st, err, ended)
		})
		switch out {
		case wakeBegun:
			f.waking = underway{instance: id, began: now, takes: f.expectedWake(st)}
			f.costs.rises(id, true, now)
			trace.begun()
			return i
		case wakeUnderWay:
			return nil
		case wakePaused:
			f.retry.arm(retry, now)
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
func (f *Function) asksFor(sleepers []*route.Instance, kept api.Tokens, now time.Time) bool {
	if kept < leastKept || f.sees() != nil || f.q.grants.granted(sleepers[0].ID) {
		f.preferred = preferred{}
		return false
	}
	first := sleepers[0].ID
	if f.preferred.instance != first {
		f.preferred = preferred{first, now.Add(mostAsked)}
	}
	if !now.Before(f.preferred.until) || !slices.ContainsFunc(sleepers, func(i *route.Instance) bool { return f.q.grants.granted(i.ID) }) {
		return false
	}
	f.retry.arm(f.preferred.until, now)
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
	return st.State == api.Starting && st.Stage == api.StepWaking
}

// woke records the end of a call to wake an instance; trace is nil if the call is not traced.
func (f *Function) woke(id api.InstanceID, st api.InstanceStatus, err error, trace *Wake) {
	f.Metrics.Woke("direct", err)
	if err != nil {
		f.q.cfg.Log.Warn("wake failed", "function", f.Name, "instance", id, "error", err)
	}
	f.update(func(now time.Time) {
		f.waking = underway{}
		f.costs.rises(id, false, now)
		if err == nil {
			trace.wokenBy(id)
			f.learn(st, now)
		}
	})
	if err == nil {
		f.gather()
	} else {
		f.meter.sendNow() // the autoscaler has to act now
	}
}

// update changes f's instances under mu, and then acts on the change.
func (f *Function) update(change func(now time.Time)) {
	now := time.Now()
	f.mu.Lock()
	change(now)
	f.beginWake(now)
	names := f.adapters()
	renamed := !slices.Equal(names, f.known)
	f.known = names
	f.mu.Unlock()
	f.dispatch()
	if renamed {
		f.q.cfg.Renamed()
	}
}

// learn applies a report. The caller holds mu.
func (f *Function) learn(st api.InstanceStatus, now time.Time) {
	if !f.set.Observe(st, now) {
		return
	}
	f.costs.rises(st.Instance, st.State == api.Starting, now)
	if st.State == api.Draining { // the function that needs its memory does not wait for them
		for w := range f.wants {
			if w.slot == nil || w.slot.Instance != st.Instance {
				continue
			}
			if w.Drains != nil {
				w.Drains()
			}
			if w.Background {
				w.End(api.Errorf(http.StatusTooManyRequests, CodeEvicted, "the request was ended because its instance drains: send it again"))
			}
		}
	}
	if st.WakeTime > 0 {
		f.wakeTime = st.WakeTime
	}
	if st.LoadTime > 0 {
		f.loadTime = st.LoadTime
	}
	f.model = cmp.Or(st.Model, f.model)
	if st.Ready() {
		f.trace.sawAwake(now)
		f.failed = nil
	}
	awake := f.set.Awake(now)
	f.unavailable.set(!awake, now)
	f.paused.set(!awake && slices.ContainsFunc(f.set.All(), func(i *route.Instance) bool { return i.Status().OnItsWay() }), now)
}
