package waketrace

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// BenchmarkWake measures the cost of a wake's trace before the call to the instance, and in total.
func BenchmarkWake(b *testing.B) {
	tracer := NewTracer(nil)
	began := func() (root, call *Span) {
		root = tracer.Root("default/m", api.Trace{}, api.PartActivator, time.Now())
		call = root.Start(Step{Name: api.SpanWake, Part: api.PartActivator, Instance: "m-0001"})
		With(b.Context(), call)
		return root, call
	}
	b.Run("begun", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			began()
		}
	})
	b.Run("told", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			root, call := began()
			now := time.Now()
			call.Done(nil)
			for _, name := range []string{api.SpanHold, api.SpanDispatch, api.SpanFirstToken} {
				root.Start(Step{Name: name, Part: api.PartActivator, Began: now, Ended: now})
			}
			root.Done(nil)
			root.Wake().Spans(now, api.Span{Took: time.Second})
		}
	})
}
