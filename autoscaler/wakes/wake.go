package wakes

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// wake is what is known of one wake. Its attempt, what the autoscaler does for it, begins with the demand that tells
// of a request for which no instance is awake, or with a decision that no request asked for.
type wake struct {
	function  api.FunctionName
	trace     string
	record    *api.WakeTrace  // nil: it is not known yet
	root      *waketrace.Span // of the attempt; nil: it was no attempt of ours, or is long over
	own       bool            // no request asked for it
	activator string          // that told of it
	sent      time.Time       // when, by the activator's clock
	heard     time.Time
	way       string // the ID of the span of the demand's way
	acted     bool   // the decision has been made
	freed     bool   // another instance had to go or to sleep for it
	done      bool   // an instance is awake, or nobody waits any more
	startups  []*startup
	path      api.Path  // of the instance that came up; empty: none has yet
	bound     api.Path  // the same, as the binder of pods says it
	awake     time.Time // when that was known; zero: it is not
	by        api.Part
	reason    string
}

// startup is the start or wake of an instance.
type startup struct {
	instance    api.InstanceID
	start, call *waketrace.Span // of a start, until the instance is awake, or nil for a wake; of the call to it
	over        bool            // it is awake, or gone
}

// told is the span that the instance is told: its steps are those of this.
func (up *startup) told() *waketrace.Span { return cmp.Or(up.start, up.call) }

// of is the startup of an instance that is not awake or gone yet; nil: none.
func (w *wake) of(id api.InstanceID) *startup {
	k := slices.IndexFunc(w.startups, func(up *startup) bool { return up.instance == id && !up.over })
	if k < 0 {
		return nil
	}
	return w.startups[k]
}

// pathOf is how an instance came up, which did it itself as came says.
func (w *wake) pathOf(came api.Path) api.Path {
	if came == api.PathCold && w.freed {
		came = api.PathColdFreed
	}
	return cmp.Or(w.path, w.bound, came)
}

// into adds the spans of w to o, whose beginning is at zero by our clock. All lie in within, which is the request's
// hold or the whole. Those of an instance that came up beside o's are left out; what made room, and
// what failed before, is part of o's wake.
func (w *wake) into(o *api.WakeTrace, zero time.Time, within api.Span) {
	others := map[string]bool{w.way: true}
	for _, s := range w.root.Wake().Spans(zero, within) {
		for _, up := range w.startups {
			if s.ID == up.call.Trace().Span || s.ID == up.start.Trace().Span {
				s.Who = up.instance
			}
		}
		room := s.Name == api.SpanVictim || s.Name == api.SpanVictimEnd
		if others[s.Parent] || s.Who != "" && s.Who != o.Instance && !room && s.Note == "" {
			others[s.ID] = true
		}
		if !others[s.ID] {
			o.Add(s)
		}
	}
}

// aside adds the spans of w to the activator's record. The demand's way is the difference of two machines' clocks:
// one that can't be is not believed, and counts as none.
func (w *wake) aside(o *api.WakeTrace) {
	within := o.Whole()
	if k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanHold }); k >= 0 {
		within = o.Spans[k]
	}
	if w.activator != o.Activator {
		// Another activator's requests waited for it: what we know is when it was awake.
		w.into(o, w.awake.Add(-within.End()), within)
		return
	}
	var busy time.Duration // until we had done our part
	for _, s := range w.root.Wake().Spans(w.heard, api.Span{Took: time.Hour}) {
		if s.Part == api.PartAutoscaler {
			busy = max(busy, s.After)
		}
	}
	way := api.Span{ID: w.way, Parent: within.ID, Name: api.SpanEvent, Part: api.PartAutoscaler, After: min(max(0, w.sent.Sub(o.Start)), within.End())}
	if took := w.heard.Sub(w.sent); took > 0 && took <= within.End()-way.After-busy {
		way.Took = took
	}
	o.Add(way)
	w.into(o, w.heard.Add(-way.End()), within)
}
