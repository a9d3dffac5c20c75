package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// TestTracesEnd: the trace of a wake ends, as failed, with the last request that waited for it, wherever that leaves.
func TestTracesEnd(t *testing.T) {
	var traces *tracetest.SpanRecorder
	report := func(s api.State, seq uint64) api.InstanceStatus {
		return api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: s, PID: 7, Seq: seq, Endpoint: "http://192.0.2.1:80", Since: time.Now()}
	}
	ended := func() (all []sdktrace.ReadOnlySpan) {
		for _, s := range traces.Ended() {
			if s.Name() == "wake m" && s.Status().Code == codes.Error {
				all = append(all, s)
			}
		}
		return all
	}
	for name, leaves := range map[string]func(t *testing.T, f *Function, ctx context.Context, w *Want){
		"while its slot is handed over": func(t *testing.T, f *Function, ctx context.Context, w *Want) {
			go func() { _, _ = f.Acquire(ctx, w) }()
			synctest.Wait()
			f.mu.Lock()
			f.learn(report(api.Awake, 3), time.Now())
			f.mu.Unlock()
			e, s, ok := f.next()
			if !ok || s.trace == nil {
				t.Fatal("it gets no slot with the trace")
			}
			w.End(context.Canceled)
			synctest.Wait()
			f.offer(e, s)
		},
		"with its slot": func(t *testing.T, f *Function, ctx context.Context, w *Want) {
			got := acquireLater(t, ctx, f, w)
			f.q.ObserveInstance(report(api.Awake, 3))
			(<-got).Done(Used{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFunction(t, 1, nil)
				traces = tracetest.NewSpanRecorder()
				f.q.cfg.Tracer = waketrace.NewTracer(waketrace.ExportTo(traces))
				f.q.ObserveInstance(report(api.Asleep, 2))
				ctx, w := want(t, "a", 0)
				leaves(t, f, ctx, w)
				f.Leave(w)
				if all := ended(); len(all) != 1 {
					t.Errorf("%d traces have ended, of %d begun", len(all), len(traces.Started()))
				}
				if a := f.Activity(); a.Running != 0 || a.Waiting != 0 {
					t.Errorf("left are %+v", a)
				}
			})
		})
	}
}
