package autoscaler

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// wake is the state of one wake. Its attempt, the autoscaler's part, begins with a demand whose request finds no
// instance awake, or with a decision that no request asked for.
type wake struct {
	function  api.FunctionName
	trace     string
	record    *api.WakeTrace  // nil: not known yet
	root      *waketrace.Span // of the attempt; nil: it was no attempt of ours, or is long over
	own       bool            // no request asked for it
	activator string          // that reported the demand
	sent      time.Time       // when, by the activator's clock
	heard     time.Time
	way       string // the ID of the span of the demand's delivery
	acted     bool   // the decision has been made
	freed     bool   // another instance had to go or to sleep for it
	done      bool   // an instance is awake, or no request waits any more
	startups  []*startup
	path      api.Path  // of the instance that came up; empty: none has yet
	bound     api.Path  // the same, from the binder of pods
	awake     time.Time // when that was known; zero: it is not
	by        api.Part
	reason    string
}

// startup is the start or wake of an instance.
type startup struct {
	instance    api.InstanceID
	start, call *waketrace.Span // of a start until the instance is awake, nil for a wake; of the call
	over        bool            // it is awake, or gone
}

// told returns the span that the instance is told, the parent of its steps.
func (up *startup) told() *waketrace.Span { return cmp.Or(up.start, up.call) }

// of returns the unfinished startup of an instance; nil: none.
func (w *wake) of(id api.InstanceID) *startup {
	k := slices.IndexFunc(w.startups, func(up *startup) bool { return up.instance == id && !up.over })
	if k < 0 {
		return nil
	}
	return w.startups[k]
}

// pathOf returns how an instance came up; came is the path by its own state.
func (w *wake) pathOf(came api.Path) api.Path {
	if came == PathCold && w.freed {
		came = PathColdFreed
	}
	return cmp.Or(w.path, w.bound, came)
}

// into adds the spans of w to o, whose beginning is at zero by our clock. All are within within, the request's hold or
// the whole. Spans of other instances that came up are left out; making room, and earlier failures, are part of o's
// wake.
func (w *wake) into(o *api.WakeTrace, zero time.Time, within api.Span) {
	others := map[string]bool{w.way: true}
	for _, s := range w.root.Wake().Spans(zero, within) {
		for _, up := range w.startups {
			if s.ID == up.call.Trace().Span || s.ID == up.start.Trace().Span {
				s.Who = up.instance
			}
		}
		room := s.Name == spanVictim || s.Name == api.SpanVictimEnd
		if others[s.Parent] || s.Who != "" && s.Who != o.Instance && !room && s.Note == "" {
			others[s.ID] = true
		}
		if !others[s.ID] {
			o.Add(s)
		}
	}
}

// aside adds the spans of w to the activator's record. The demand's delay is the difference of two machines' clocks: an
// impossible value counts as none.
func (w *wake) aside(o *api.WakeTrace) {
	within := o.Whole()
	if k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanHold }); k >= 0 {
		within = o.Spans[k]
	}
	if w.activator != o.Activator {
		// Another activator's requests waited for it: we only know when it was awake.
		w.into(o, w.awake.Add(-within.End()), within)
		return
	}
	var busy time.Duration // until our part was done
	for _, s := range w.root.Wake().Spans(w.heard, api.Span{Took: time.Hour}) {
		if s.Part == api.PartAutoscaler {
			busy = max(busy, s.After)
		}
	}
	way := api.Span{ID: w.way, Parent: within.ID, Name: spanEvent, Part: api.PartAutoscaler, After: min(max(0, w.sent.Sub(o.Start)), within.End())}
	if took := w.heard.Sub(w.sent); took > 0 && took <= within.End()-way.After-busy {
		way.Took = took
	}
	o.Add(way)
	w.into(o, w.heard.Add(-way.End()), within)
}
