package waketrace

import (
	"cmp"
	"slices"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rouse-dev/rouse/api"
)

const mostSpans = 64

// Wake records the spans below one root.
type Wake struct {
	tracer trace.Tracer

	mu     sync.Mutex // guards the fields below
	closed bool
	spans  []sdktrace.ReadOnlySpan
}

func newWake(t trace.Tracer) *Wake {
	return &Wake{tracer: t, spans: make([]sdktrace.ReadOnlySpan, 0, 8)} // enough for most wakes
}

func (w *Wake) add(made trace.Span) {
	s, recorded := made.(sdktrace.ReadOnlySpan)
	w.mu.Lock()
	defer w.mu.Unlock()
	if recorded && !w.closed && len(w.spans) < mostSpans {
		w.spans = append(w.spans, s)
	}
}

// Close stops recording: spans that begin later do not belong to the wake.
func (w *Wake) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// Spans returns the spans of the wake, parents first, relative to zero. Each is clipped to its parent, or to within,
// a span of the record, if its parent is not recorded. A span that has not ended ends with its parent. The field Who
// is the instance that a span is about.
func (w *Wake) Spans(zero time.Time, within api.Span) []api.Span {
	w.mu.Lock()
	all := slices.Clone(w.spans)
	w.mu.Unlock()
	spans := make([]api.Span, 0, len(all))
	for _, made := range all {
		s := api.Span{ID: made.SpanContext().SpanID().String(), Parent: made.Parent().SpanID().String(), Name: made.Name()}
		note := ""
		for _, a := range made.Attributes() {
			switch a.Key {
			case keyPart:
				s.Part = api.Part(a.Value.AsString())
			case keyInstance:
				s.Who = api.InstanceID(a.Value.AsString())
			case keyNote:
				note = a.Value.AsString()
			}
		}
		if s.Note = made.Status().Description; s.Note != "" && note != "" {
			s.Note = note + ": " + s.Note
		}
		s.Note = cmp.Or(s.Note, note)
		outer := within
		if k := slices.IndexFunc(spans, func(p api.Span) bool { return p.ID == s.Parent }); k >= 0 && s.Name != api.SpanVictimEnd {
			outer = spans[k]
		} // the call to a victim has ended when the victim's end begins
		s.Parent = outer.ID
		end := within.End()
		if ended := made.EndTime(); !ended.IsZero() {
			end = ended.Sub(zero)
		}
		s.After = min(max(outer.After, made.StartTime().Sub(zero)), outer.End())
		s.Took = max(0, min(end, outer.End())-s.After)
		spans = append(spans, s)
	}
	return spans
}
