package wakes

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// attempt is a wake attempt: what the autoscaler does for one wake. It begins with the demand that tells of a
// request for which no instance is awake, or with a decision that no request asked for, and ends when an instance is awake.
type attempt struct {
	root       *waketrace.Span // of the activator, or our own
	own        bool            // no request asked for it
	activator  string
	sent       time.Time // the demand, by the activator's clock
	heard      time.Time
	event      string // the ID of the span of its way
	acted      bool   // the decision has been made
	freed      bool   // another instance had to go or to sleep for it
	done       bool   // an instance is awake, or nobody waits any more
	startups   []*startup
	kubernetes map[string]bool // the pod steps that were told
	path       api.Path        // of the instance that came up; empty: none has yet
	bound      api.Path        // the same, as the binder of pods says it
	awake      time.Time       // when that was known; zero: it is not
	by         api.Part
	reason     string
}

// startup is the start or wake of an instance.
type startup struct {
	instance api.InstanceID
	start    *waketrace.Span // of a start, until the instance is awake; nil: it is a wake
	call     *waketrace.Span
	over     bool // it is awake, or gone
}

// told is the span that the instance is told: its steps are those of this.
func (s *startup) told() *waketrace.Span {
	if s.start != nil {
		return s.start
	}
	return s.call
}

// of is the startup of an instance that is not awake or gone yet; nil: none.
func (e *attempt) of(id api.InstanceID) *startup {
	for _, s := range slices.Backward(e.startups) {
		if s.instance == id && !s.over {
			return s
		}
	}
	return nil
}

// decided ends the decision.
func (e *attempt) decided(reason string, now time.Time) {
	if !e.acted && !e.own {
		e.root.Start(waketrace.Step{Name: api.SpanDecision, Part: api.PartAutoscaler, Began: e.heard, Ended: now, Note: reason})
	}
	e.acted = true
}

// pathOf is how an instance came up, of which came is what it did itself.
func (e *attempt) pathOf(came api.Path) api.Path {
	switch {
	case e == nil:
	case e.bound != "":
		return e.bound
	case came == api.PathCold && e.freed:
		return api.PathColdFreed
	}
	return came
}

// into adds the spans of e to o, whose beginning is at zero by our clock. All lie in within, which is the request's
// hold or the whole. Those of an instance that came up beside o's are left out; what made room, and
// what failed before, is part of o's wake.
func (e *attempt) into(o *api.WakeTrace, zero time.Time, within api.Span) {
	others := make(map[string]bool)
	for _, s := range e.root.Wake().Spans(zero, within) {
		for _, up := range e.startups {
			if s.ID == up.call.Trace().Span || s.ID == up.start.Trace().Span {
				s.Who = up.instance
			}
		}
		room := s.Name == api.SpanVictim || s.Name == api.SpanVictimEnd
		if others[s.Parent] || s.Who != "" && s.Who != o.Instance && !room && s.Note == "" {
			others[s.ID] = true
		} else if s.ID != e.event {
			o.Add(s)
		}
	}
}

// aside adds what e did to the activator's record. The demand's own time is the difference of two machines' clocks:
// one that can't be is not believed, and counts as none.
func (e *attempt) aside(o *api.WakeTrace) {
	within := o.Whole()
	if k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanHold }); k >= 0 {
		within = o.Spans[k]
	}
	if e.activator != o.Activator {
		// Another activator's requests waited for it: what we know is when it was awake.
		e.into(o, e.awake.Add(-within.End()), within)
		return
	}
	var busy time.Duration // until we had done our part
	for _, s := range e.root.Wake().Spans(e.heard, api.Span{Took: time.Hour}) {
		if s.Part == api.PartAutoscaler {
			busy = max(busy, s.After)
		}
	}
	event := api.Span{ID: e.event, Parent: within.ID, Name: api.SpanEvent, Part: api.PartAutoscaler, After: min(max(0, e.sent.Sub(o.Start)), within.End())}
	if took := e.heard.Sub(e.sent); took > 0 && took <= within.End()-event.After-busy {
		event.Took = took
	}
	o.Add(event)
	e.into(o, e.heard.Add(-event.End()), within)
}
