package autoscaler

import (
	"context"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// The outline of a wake is put together here, of three parts:
//
//  1. what this autoscaler did: a function's errand begins with the demand that
//     tells of a request for which nobody is awake (or with a decision that
//     no request asked for), and ends when an instance is awake;
//  2. what the activator saw, which comes as an event once the first byte of the
//     answer has gone out;
//  3. what the instance says of its steps, which comes with its status.
//
// All of it belongs to the loop.

// PodStep is something that Kubernetes did for an instance: [api.SpanCreated] and
// those that follow. The times are Kubernetes' own.
type PodStep struct {
	Name         string
	Began, Ended time.Time
}

// Work is what was done in the world for a wake, in the span that its trace names.
type Work struct {
	Name string // [api.SpanWrite] or [api.SpanVictimEnd]
	Part api.Part
	// Who is the instance that it is about, where it is not that which comes up; What says more.
	Who  api.InstanceID
	What string
	// Ended is zero while it goes on: told again, with its end, it is the same.
	Began, Ended time.Time
}

// noteDemand begins an errand where requests wait that none is for, and ends one
// that nobody waits for.
func (f *function) noteDemand(d api.Demand, now time.Time) {
	e := f.errand()
	if f.Waiting == 0 && e != nil && !e.own && !e.acted {
		e.done = true
	}
	if d.Waiting == 0 || d.Trace == "" || e != nil || f.errandOf(traceID(d.Trace)) != nil {
		return
	}
	if t, found := api.ParseTrace(d.Trace); found {
		f.newErrand(&errand{trace: t, activator: d.Activator, sent: d.At, heard: now})
	}
}

// rises notes that an instance is to come up, and returns the trace that the call for
// it carries.
func (a *Autoscaler) rises(i *instance, act *decide.Action, now time.Time) api.Trace {
	e := i.f.errandFor(now)
	e.decided(act.Reason, now)
	e.by, e.reason = api.PartAutoscaler, act.Reason
	i.errand = e
	if act.Kind == decide.Wake {
		i.span = e.stretch(stretch{name: api.SpanWake, part: api.PartAutoscaler, who: i.Status.Instance, began: now})
		return api.Trace{ID: e.trace.ID, Span: i.span.id, Unsampled: e.trace.Unsampled}
	}
	i.rise = e.stretch(stretch{name: api.SpanRise, part: api.PartAutoscaler, who: i.Status.Instance, began: now})
	i.span = e.stretch(stretch{name: api.SpanStart, part: api.PartAutoscaler, who: i.Status.Instance, began: now, parent: i.rise.id})
	return api.Trace{ID: e.trace.ID, Span: i.rise.id, Unsampled: e.trace.Unsampled}
}

// goes notes that an instance makes room for another function's errand, and returns the trace that the call
// for it carries; the zero value: it goes for nobody.
func (a *Autoscaler) goes(i *instance, act *decide.Action, now time.Time) api.Trace {
	f := a.functions[act.For]
	if f == nil {
		return api.Trace{}
	}
	e := f.errandFor(now)
	e.decided(act.Reason, now)
	e.freed = true
	i.span = e.stretch(stretch{name: api.SpanVictim, part: api.PartAutoscaler, who: i.Status.Instance, began: now})
	return api.Trace{ID: e.trace.ID, Span: i.span.id, Unsampled: e.trace.Unsampled}
}

// noteDone ends the span of a call to an instance.
func (i *instance) noteDone(err error, now time.Time) {
	if i.span == nil {
		return
	}
	i.span.ended = now
	if err != nil {
		i.span.note = clip(err.Error())
	}
	i.span = nil
}

// NotePodSteps adds what Kubernetes did for an instance to the outline of its start or
// wake, before the report that it is awake. A step of a name that was noted before
// replaces it. path is how it came up, where who binds pods knows it better; empty:
// he does not. It does not block.
func (a *Autoscaler) NotePodSteps(name api.FunctionName, pod api.InstanceID, path api.Path, steps ...PodStep) {
	a.box.post(func() {
		f, i := a.functions[name], a.instances[pod]
		if f == nil {
			return
		}
		e, within := f.errand(), ""
		if i != nil && i.errand != nil {
			e = i.errand
		}
		if e == nil {
			return
		}
		if i != nil && i.rise != nil {
			within = i.rise.id
		}
		e.bound = path
		for _, s := range steps {
			id := e.trace.Child(string(api.PartKubernetes), string(pod), s.Name).Span
			e.spans = slices.DeleteFunc(e.spans, func(o *stretch) bool { return o.id == id })
			e.stretch(stretch{id: id, parent: within, name: s.Name, part: api.PartKubernetes, who: pod, began: s.Began, ended: s.Ended})
		}
	})
}

// NoteWork adds what was done for a wake to its outline: t is the trace that the call carried which it
// was done for. What is told of a wake that is over, or of none, is forgotten. It does not block.
func (a *Autoscaler) NoteWork(t api.Trace, w Work) {
	if t.Zero() {
		return
	}
	a.box.post(func() {
		e := a.errandOf(t)
		if e == nil {
			return
		}
		id := t.Child(string(w.Part), w.Name, w.What, string(w.Who), w.Began.Format(time.RFC3339Nano)).Span
		if k := slices.IndexFunc(e.spans, func(s *stretch) bool { return s.id == id }); k >= 0 {
			e.spans[k].ended = w.Ended
			return
		}
		if e.done {
			return
		}
		s := stretch{id: id, parent: t.Span, name: w.Name, part: w.Part, who: w.Who, began: w.Began, ended: w.Ended, note: clip(w.What)}
		if w.Name == api.SpanVictimEnd {
			s.parent = "" // the call is over when it begins
		}
		e.stretch(s)
	})
}

// errandOf is the errand with a trace, of whatever function; nil: none that is remembered.
func (a *Autoscaler) errandOf(t api.Trace) *errand {
	for _, f := range a.functions {
		if e := f.errandOf(t.ID); e != nil {
			return e
		}
	}
	return nil
}

// awoke notes that an instance is awake. Where no request asked for it, the record is
// complete; else it waits for the activator's word, and is there as it is until then.
func (a *Autoscaler) awoke(i *instance, now time.Time) {
	e := i.errand
	if e == nil {
		e = i.f.errand() // an activator woke it
	}
	i.errand = nil
	if e == nil || !e.awake.IsZero() {
		return
	}
	e.done, e.awake, e.path = true, now, i.wakePath(e)
	if i.rise != nil {
		i.rise.ended = now
		i.rise = nil
	}
	if known := i.f.outlineOf(e.trace.ID); known != nil {
		return // the activator was faster
	}
	o := api.Outline{
		Function: i.f.Spec.Name, Instance: i.Status.Instance, Trace: e.trace.ID, Root: e.trace.Span, Unsampled: e.trace.Unsampled,
		Path: e.path, By: e.by, Activator: e.activator, Reason: e.reason, Start: e.heard, Total: now.Sub(e.heard),
	}
	e.into(&o, 0, api.Span{Took: o.Total}, i.Status)
	a.keep(i.f, o)
	if e.own && a.traces != nil {
		a.traces(o)
	}
}

// wakePath is how i comes up, or came up last.
func (i *instance) wakePath(e *errand) api.Path {
	p := api.Path(i.path())
	switch {
	case e == nil:
	case e.bound != "":
		p = e.bound
	case p == api.PathCold && e.freed:
		p = api.PathColdFreed
	}
	return p
}

// ObserveWoken takes in what an activator saw of a wake. It does not block.
func (a *Autoscaler) ObserveWoken(o api.Outline) {
	a.box.post(func() {
		f := a.functions[o.Function]
		if f == nil || !f.declared {
			return
		}
		a.merged(f, o, time.Now())
	})
}

// merged completes the record of an activator, and keeps it.
func (a *Autoscaler) merged(f *function, o api.Outline, now time.Time) {
	i := a.instances[o.Instance]
	e := f.errandOf(o.Trace)
	if e == nil && o.By == "" { // another activator's requests waited for it too
		for _, other := range slices.Backward(f.errands) {
			if !other.awake.IsZero() && now.Sub(other.awake) < o.Total+time.Second {
				e = other
				break
			}
		}
	}
	var status api.InstanceStatus
	if i != nil {
		status = i.Status
	}
	switch {
	case i == nil: // it is gone again
		o.Path = api.PathAwake
	case e != nil && e.path != "":
		o.Path = e.path
	case e != nil || o.By != "":
		o.Path = i.wakePath(e)
	default:
		o.Path = api.PathAwake
	}
	if e != nil {
		if o.By == "" {
			o.By, o.Reason = e.by, e.reason
		}
		e.done = true
		e.aside(&o, status)
	}
	a.keep(f, o)
	a.outlines.observe(o)
	if a.traces != nil {
		a.traces(o)
	}
}

// Outlines returns the records of the last wakes of a function, the newest last. It waits
// like [Autoscaler.List].
func (a *Autoscaler) Outlines(name api.FunctionName) []api.Outline {
	os, _ := ask(context.Background(), a, func() []api.Outline {
		f := a.functions[name]
		if f == nil {
			return nil
		}
		var os []api.Outline
		for _, k := range f.outlines {
			os = append(os, k.Outline)
		}
		return os
	})
	return os
}
