package autoscaler

import (
	"cmp"
	"context"
	"slices"
	"strconv"
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

// errand is what the autoscaler does for one wake.
type errand struct {
	trace     api.Trace // in the span that is the whole of it
	own       bool      // no request asked for it: the trace is ours
	activator string
	sent      time.Time // of the demand, by the activator's clock
	heard     time.Time
	acted     bool // the decision has been made
	freed     bool // somebody had to go or to sleep for it
	done      bool // an instance is awake, or nobody waits any more
	spans     []*stretch
	path      api.Path  // of the instance that came up; empty: none has yet
	bound     api.Path  // the same, as who binds pods says it
	awake     time.Time // when that was known; zero: it is not
	by        api.Part
	reason    string
}

// stretch is a span while it may still run.
type stretch struct {
	id, parent   string
	name         string
	part         api.Part
	who          api.InstanceID
	began, ended time.Time // ended is zero while it runs
	note         string
}

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

const (
	keptErrands = 4  // of a function: reports of several wakes may cross
	mostSpans   = 64 // of an errand
)

// errand is the one under way; nil: none.
func (f *function) errand() *errand {
	if n := len(f.errands); n > 0 && !f.errands[n-1].done {
		return f.errands[n-1]
	}
	return nil
}

// errandOf is that of a trace; nil: none that is remembered.
func (f *function) errandOf(trace string) *errand {
	for _, e := range slices.Backward(f.errands) {
		if e.trace.ID == trace {
			return e
		}
	}
	return nil
}

// errandFor is the one under way, or one that no request asked for.
func (f *function) errandFor(now time.Time) *errand {
	if e := f.errand(); e != nil {
		return e
	}
	return f.newErrand(&errand{trace: api.NewTrace(), own: true, heard: now})
}

func (f *function) newErrand(e *errand) *errand {
	if len(f.errands) == keptErrands {
		f.errands = slices.Delete(f.errands, 0, 1)
	}
	f.errands = append(f.errands, e)
	return e
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

func traceID(traceparent string) string {
	t, _ := api.ParseTrace(traceparent)
	return t.ID
}

// stretch begins a span of e.
func (e *errand) stretch(s stretch) *stretch {
	if s.id == "" {
		s.id = e.trace.Child(string(api.PartAutoscaler), s.name, strconv.Itoa(len(e.spans))).Span
	}
	if len(e.spans) < mostSpans {
		e.spans = append(e.spans, &s)
	}
	return &s
}

// decided ends the decision.
func (e *errand) decided(reason string, now time.Time) {
	if !e.acted && !e.own {
		e.stretch(stretch{name: api.SpanDecision, part: api.PartAutoscaler, began: e.heard, ended: now, note: reason})
	}
	e.acted = true
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

// renamed follows an instance to the ID that it turned out to have.
func (e *errand) renamed(from, to api.InstanceID) {
	if e == nil {
		return
	}
	for _, s := range e.spans {
		if s.who == from {
			s.who = to
		}
	}
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
		Function: i.f.name, Instance: i.Status.Instance, Trace: e.trace.ID, Root: e.trace.Span, Unsampled: e.trace.Unsampled,
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

// another says whether s is of an instance that came up beside id. What made room, and
// what failed before, is part of id's wake.
func (s *stretch) another(id api.InstanceID) bool {
	return s.who != "" && s.who != id && s.name != api.SpanVictim && s.name != api.SpanVictimEnd && s.note == ""
}

// into adds the spans of e to o, whose beginning is so long before e was heard of, and
// the steps that the instance reports of them. All lie in within, which is the request's
// hold or the whole.
func (e *errand) into(o *api.Outline, offset time.Duration, within api.Span, status api.InstanceStatus) {
	others := make(map[string]bool)
	for _, s := range e.spans {
		if s.another(o.Instance) || others[s.parent] {
			others[s.id] = true
			continue
		}
		end := offset + s.ended.Sub(e.heard)
		if s.ended.IsZero() {
			end = within.End()
		}
		span := api.Span{ID: s.id, Parent: cmp.Or(s.parent, within.ID), Name: s.name, Part: s.part, Note: s.note}
		span.After = min(max(0, offset+s.began.Sub(e.heard)), within.End())
		span.Took = max(0, min(end, within.End())-span.After)
		if s.who != o.Instance {
			span.Who = s.who
		}
		o.Add(span)
		o.AddSteps(span, o.Instance, status.StepsOf(s.id), s.name == api.SpanRise)
	}
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

// aside lays what e did into the activator's record. The event's own time is the
// difference of two machines' clocks: one that can't be is not believed, and counts as none.
func (e *errand) aside(o *api.Outline, status api.InstanceStatus) {
	within := api.Span{Took: o.Total}
	if k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanHold }); k >= 0 {
		within = o.Spans[k]
	}
	var busy time.Duration // until we had done our part
	for _, s := range e.spans {
		if s.part == api.PartAutoscaler {
			busy = max(busy, s.began.Sub(e.heard))
		}
	}
	k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.ID == o.EventID() })
	if k < 0 || e.activator != o.Activator {
		// Another activator's requests waited for it: what we know is when it was awake.
		e.into(o, within.End()-e.awake.Sub(e.heard), within, status)
		return
	}
	event := &o.Spans[k]
	if took := e.heard.Sub(e.sent); took > 0 && took <= within.End()-event.After-busy {
		event.Took = took
	}
	e.into(o, event.After+event.Took, within, status)
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
