package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestParseTrace(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for text, want := range map[string]api.Trace{
		"00-" + id + "-" + span + "-01":         {ID: id, Span: span},
		"00-" + id + "-" + span + "-00":         {ID: id, Span: span, Unsampled: true},
		"00-" + id + "-" + span + "-03":         {ID: id, Span: span},
		"01-" + id + "-" + span + "-01-further": {ID: id, Span: span},
	} {
		got, found := api.ParseTrace(text)
		if !found || got != want {
			t.Errorf("ParseTrace(%q) = %+v, %t", text, got, found)
		}
	}
	for _, text := range []string{
		"", "00", "00-" + id + "-" + span, "ff-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01-further",
		"00-00000000000000000000000000000000-" + span + "-01", "00-" + id + "-0000000000000000-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", "zz-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-xx",
	} {
		if got, found := api.ParseTrace(text); found {
			t.Errorf("ParseTrace(%q) = %+v, want none", text, got)
		}
	}
}

func TestTraceGoesOn(t *testing.T) {
	trace := api.NewTrace()
	again, found := api.ParseTrace(trace.String())
	if !found || again != trace {
		t.Errorf("%q is read as %+v", trace, again)
	}
	child := trace.Child("activator", "wake call")
	if child.ID != trace.ID || child.Span == trace.Span || !api.ValidSpan(child.Span) || child != trace.Child("activator", "wake call") {
		t.Errorf("the child of %v is %v", trace, child)
	}
	if api.SpanID("t", "a", "b") == api.SpanID("t", "ab") {
		t.Error("two keys have one ID")
	}
	if got := api.TraceOf(api.WithTrace(context.Background(), child)); got != child {
		t.Errorf("a context carries %v, want %v", got, child)
	}
	if got := api.TraceFrom(http.Header{api.HeaderTrace: {child.String()}}); got != child {
		t.Errorf("a header carries %v, want %v", got, child)
	}
	if none := (api.Trace{}).Child("x"); none.String() != "" || !api.TraceOf(api.WithTrace(context.Background(), none)).Zero() {
		t.Errorf("no trace became %v", none)
	}
}

// TestOutlineIsWithinItself: whatever other machines' clocks say.
func TestOutlineIsWithinItself(t *testing.T) {
	const ms = time.Millisecond
	o := api.Outline{Trace: "t", Root: "r", Total: 10 * ms}
	call := api.Span{ID: "c", Name: api.SpanWake, After: 2 * ms, Took: 6 * ms}
	o.Add(call)
	o.Add(api.Span{ID: "h", Name: api.SpanHold, Took: 9 * ms})
	o.Add(api.Span{ID: "late", Name: "late", After: 50 * ms, Took: 5 * ms})
	o.Add(api.Span{ID: "early", Name: "early", After: -5 * ms, Took: 100 * ms})
	o.AddSteps(call, "i", []api.Step{{Name: "waking", Took: 3 * ms}, {Name: "probing", After: 3 * ms, Took: ms}}, false)
	type row struct {
		name, parent string
		after, took  time.Duration
	}
	var got []row
	for _, s := range o.Spans {
		got = append(got, row{s.Name, s.Parent, s.After, s.Took})
	}
	want := []row{
		{"hold", "r", 0, 9 * ms}, {"early", "r", 0, 10 * ms}, {"wake call", "r", 2 * ms, 6 * ms},
		{"waking", "c", 3 * ms, 3 * ms}, {"probing", "c", 6 * ms, ms}, {"late", "r", 10 * ms, 0},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}

// TestStepsThatAreLongerThanTheirCall are cut to it.
func TestStepsThatAreLongerThanTheirCall(t *testing.T) {
	o := api.Outline{Root: "r", Total: time.Second}
	o.AddSteps(api.Span{ID: "c", After: 100, Took: 50}, "i", []api.Step{{Name: "a", Took: 40}, {Name: "b", After: 40, Took: 400}, {Name: "c", After: 1000, Took: -7}}, true)
	for _, s := range o.Spans {
		if s.After < 100 || s.End() > 150 || s.Took < 0 {
			t.Errorf("%s lies at %d for %d", s.Name, s.After, s.Took)
		}
	}
}
