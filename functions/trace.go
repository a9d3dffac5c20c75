package functions

import (
	"context"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// traced is the context of a call to wake, with the trace that it is part of: its header
// says so, or else the grant that it was made with.
func traced(r *http.Request, g api.Grant) context.Context {
	t := api.TraceFrom(r.Header)
	if t.Zero() {
		t, _ = api.ParseTrace(g.Trace)
	}
	return api.WithTrace(r.Context(), t)
}

// rose exports the steps of a start or wake that somebody traces.
func (f *function) rose(s api.InstanceStatus, r supervise.Rise) {
	if f.cfg.Traces == nil || r.Trace.Zero() {
		return
	}
	o := api.Outline{Function: s.Function, Instance: s.Instance, Trace: r.Trace.ID, Root: r.Trace.Span, Unsampled: r.Trace.Unsampled, Start: r.Began, Total: r.Took}
	o.AddSteps(api.Span{ID: r.Trace.Span, Took: r.Took}, s.Instance, r.Steps, false)
	f.cfg.Traces.Outline(o, api.PartInstance)
}
