package autoscaler

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

const (
	keptErrands = 4  // of a function: reports of several wakes may cross
	mostSpans   = 64 // of an errand
)

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
