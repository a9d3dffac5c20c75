package door

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// A wake in another cluster has records there and here, with the trace that the demand carries.

const mostWakes = 20

type wakes struct {
	records []api.WakeTrace // of this front door's activator; the newest last
	parts   []api.WakeTrace // of autoscalers
}

func (w *wakes) held(o api.WakeTrace) {
	for _, part := range w.parts {
		if part.Trace == o.Trace {
			within(&o, part)
		}
	}
	w.records = append(w.records[max(0, len(w.records)-mostWakes+1):], o)
}

func (w *wakes) happened(part api.WakeTrace) {
	if slices.ContainsFunc(w.parts, func(p api.WakeTrace) bool { return p.Trace == part.Trace && p.Cluster == part.Cluster }) {
		return
	}
	w.parts = append(w.parts[max(0, len(w.parts)-mostWakes+1):], part)
	for i := range w.records {
		if w.records[i].Trace == part.Trace {
			within(&w.records[i], part)
		}
	}
}

// within centers a part in the time for which o's request was held: clocks are not compared. A part longer than the hold
// began before it, for another request.
func within(o *api.WakeTrace, part api.WakeTrace) {
	hold := o.Whole()
	if k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == api.SpanHold }); k >= 0 {
		hold = o.Spans[k]
	}
	shift := hold.After + (hold.Took-part.Total)/2
	if part.Total > hold.Took {
		shift = hold.End() - part.Total
	}
	add := func(s api.Span) {
		began, ended := max(s.After+shift, hold.After), min(s.End()+shift, hold.End())
		s.After, s.Took = min(began, hold.End()), max(0, ended-began)
		o.Add(s)
	}
	if o.Cluster == "" {
		o.Cluster = part.Cluster
	}
	o.Path, o.By, o.Reason = cmp.Or(o.Path, part.Path), cmp.Or(o.By, part.By), cmp.Or(o.Reason, part.Reason)
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	all := api.Span{ID: hex.EncodeToString(id[:]), Parent: hold.ID, Name: "woken elsewhere", Part: "cluster", Took: part.Total, Note: "in the cluster " + part.Cluster}
	add(all)
	for _, s := range part.Spans {
		if s.Parent == part.Root {
			s.Parent = all.ID
		}
		add(s)
	}
}

// woken returns false if the request was not sent to an agent.
func (f *state) woken(fn *function, e api.Event) bool {
	var o api.WakeTrace
	if e.Type != api.EventWoken || json.Unmarshal(e.Data, &o) != nil {
		return false
	}
	for agent := range f.sessions {
		if instance(agent, fn.name) == o.Instance {
			fn.wakes.held(o)
			return true
		}
	}
	return false
}

func (f *state) mergeWakes(s *session, list []protocol.Wake) {
	for _, said := range list {
		part := said.AsTrace()
		fn := f.functions[part.Function]
		if fn == nil || fn.offers[s.agent()] == nil {
			continue
		}
		if !s.declared.Front || part.Cluster == "" { // another front door names its own cluster
			part.Cluster = s.hello.Cluster
		}
		for i := range part.Spans {
			part.Spans[i].Note = waketrace.Clip(part.Spans[i].Note)
		}
		fn.wakes.happened(part)
	}
}

// Wakes returns the records of wakes in clusters of this front door.
func (f *Front) Wakes(name api.FunctionName) []api.WakeTrace {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fn := f.functions[name]; fn != nil {
		return slices.Clone(fn.wakes.parts)
	}
	return nil
}
