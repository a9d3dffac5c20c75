package waketrace

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

const (
	theTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theSpan  = "00f067aa0ba902b7"
	ms       = time.Millisecond
)

// row is the tested part of a span.
type row struct {
	name, in    string
	after, took time.Duration
}

// rows returns the spans of a wake that took a second.
func rows(w *Wake, zero time.Time) []row {
	names := map[string]string{"root": "root"}
	var all []row
	for _, s := range w.Spans(zero, api.Span{ID: "root", Took: time.Second}) {
		names[s.ID] = s.Name
		all = append(all, row{s.Name, names[s.Parent], s.After, s.Took})
	}
	return all
}

// TestSpansLieInTheirParents checks that spans are clipped to their parents for any clocks, and that unfinished ones
// end with their parent.
func TestSpansLieInTheirParents(t *testing.T) {
	zero := time.Now()
	at := func(d time.Duration) time.Time { return zero.Add(d) }
	root := NewTracer(nil).Root("default/m", api.Trace{}, api.PartActivator, zero)
	call := root.Start(Step{Name: "call", Began: at(200 * ms)})
	call.Start(Step{Name: "early", Began: at(-5 * ms), Ended: at(300 * ms)})
	call.Start(Step{Name: "long", Began: at(300 * ms), Ended: at(900 * ms)})
	call.DoneAt(at(800*ms), nil)
	root.Start(Step{Name: "late", Began: at(2 * time.Second), Ended: at(3 * time.Second)})
	root.Start(Step{Name: "goes on", Began: at(100 * ms)})
	call.Start(Step{Name: api.SpanVictimEnd, Began: at(850 * ms), Ended: at(950 * ms)})
	root.Wake().Close()
	root.Start(Step{Name: "too late"})
	want := []row{
		{"call", "root", 200 * ms, 600 * ms}, {"early", "call", 200 * ms, 100 * ms}, {"long", "call", 300 * ms, 500 * ms},
		{"late", "root", 1000 * ms, 0}, {"goes on", "root", 100 * ms, 900 * ms}, {api.SpanVictimEnd, "root", 850 * ms, 100 * ms},
	}
	if diff := cmp.Diff(want, rows(root.Wake(), zero), cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}

// TestSteps checks that steps are placed within their call and clipped to it.
func TestSteps(t *testing.T) {
	zero := time.Now()
	for _, c := range []struct {
		late  bool
		steps []api.Step
		want  []row
	}{
		{false, []api.Step{{Name: "waking", Took: 300 * ms}, {Name: "probing", After: 300 * ms, Took: 100 * ms}},
			[]row{{"call", "root", 200 * ms, 600 * ms}, {"waking", "call", 300 * ms, 300 * ms}, {"probing", "call", 600 * ms, 100 * ms}}},
		{true, []api.Step{{Name: "loading", Took: 400 * ms}},
			[]row{{"call", "root", 200 * ms, 600 * ms}, {"loading", "call", 400 * ms, 400 * ms}}},
		{false, []api.Step{{Name: "a", After: math.MaxInt64, Took: math.MaxInt64}, {Name: "b", After: math.MinInt64, Took: 100 * ms}},
			[]row{{"call", "root", 200 * ms, 600 * ms}, {"a", "call", 800 * ms, 0}, {"b", "call", 200 * ms, 100 * ms}}},
		{true, []api.Step{{Name: "a", Took: 500 * ms}, {Name: "b", After: 500 * ms, Took: time.Hour}, {Name: "c", After: time.Hour, Took: -7}},
			[]row{{"call", "root", 200 * ms, 600 * ms}, {"a", "call", 200 * ms, 500 * ms}, {"b", "call", 700 * ms, 100 * ms}, {"c", "call", 800 * ms, 0}}},
	} {
		root := NewTracer(nil).Root("default/m", api.Trace{}, api.PartActivator, zero)
		call := root.Start(Step{Name: "call", Began: zero.Add(200 * ms), Ended: zero.Add(800 * ms)})
		call.Steps("m-1", c.steps, c.late)
		if diff := cmp.Diff(c.want, rows(root.Wake(), zero), cmp.AllowUnexported(row{})); diff != "" {
			t.Error(diff)
		}
	}
}

// TestContexts checks that contexts carry spans, also to calls to other parts, and that nil spans are safe.
func TestContexts(t *testing.T) {
	ctx, span := Start(t.Context(), Step{Name: "API write"})
	if span != nil || ctx != t.Context() || From(ctx) != nil {
		t.Error("a span begins below none")
	}
	span.Done(nil)
	span.Steps("m-1", []api.Step{{Name: "waking"}}, false)
	if got := span.Start(Step{}); got != nil || !span.Trace().Zero() {
		t.Error("none has children")
	}
	root := NewTracer(nil).Join(api.Trace{ID: theTrace, Span: theSpan})
	ctx, span = Start(With(t.Context(), root), Step{Name: "API write", Note: "a pod"})
	if got := api.TraceOf(ctx); got.ID != theTrace || got != span.Trace() || got.Unsampled {
		t.Errorf("the context of %v carries %v", span.Trace(), got)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if From(ctx) != span {
		t.Error("a context of a context carries another span")
	}
	span.Done(errors.New(strings.Repeat("no ", 500)))
	got := root.Wake().Spans(time.Now(), api.Span{ID: theSpan, Took: time.Hour})
	if len(got) != 1 || !strings.HasPrefix(got[0].Note, "a pod: no no") || len(got[0].Note) > 400 || got[0].Parent != theSpan {
		t.Errorf("got %+v", got)
	}
}
