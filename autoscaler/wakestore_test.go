package autoscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

const (
	theTrace = wakeTrace
	theRoot  = wakeRoot
	tiny     = api.FunctionName("default/a")
)

func newStore(_ *testing.T, e *waketrace.Exporter) *wakeStore { return newWakes(e, nil) }

// waitsOf is the demand of one request that came a moment before now.
func waitsOf(now time.Time) api.Demand {
	return api.Demand{Function: tiny, Activator: "act", Waiting: 1, At: now, Trace: "00-" + theTrace + "-" + theRoot + "-01"}
}

// seenWake is an activator's record of a wake that began at and took a second.
func seenWake(f api.FunctionName, id api.InstanceID, at time.Time) api.WakeTrace {
	return wokenRecord(f, id, at, time.Second, 100*time.Millisecond)
}

const ms = time.Millisecond

// TestPodSteps: what Kubernetes did lies in the start, once.
func TestPodSteps(t *testing.T) {
	s, now := newStore(t, nil), time.Now()
	s.Demand(waitsOf(now), 1, now)
	s.Startup(tiny, "made-up", false, "it is wanted", now)
	s.Rename(tiny, "made-up", "a-0001")
	step := waketrace.Step{Name: SpanScheduled, Began: now.Add(-time.Hour), Ended: now.Add(time.Second)}
	s.PodSteps(tiny, "a-0001", PathColdFreed, step, waketrace.Step{Name: SpanCreated, Began: now, Ended: now.Add(10 * ms)})
	s.PodSteps("default/nobody", "nobody", "", step)
	s.Awake(api.InstanceStatus{Function: tiny, Instance: "a-0001"}, PathCold, now.Add(2*time.Second))
	o := s.List(tiny)[0]
	got := recordText(o)
	if o.Path != PathColdFreed || strings.Count(got, "\n  kubernetes scheduled: 0s +1s\n") != 1 || !strings.Contains(got, "\n  kubernetes pod created: 0s +10ms\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestWork: what is written at the API server lies in the call that it was done for, and a victim's end beside the call to it.
func TestWork(t *testing.T) {
	s, now := newStore(t, nil), time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	s.Demand(waitsOf(now), 1, now)
	call, told := s.Startup(tiny, "a-0001", false, "it is wanted", now)
	room := s.Room(tiny, "b-0001", "it makes room", now)
	if told.ID != theTrace || told.Span == call.Trace().Span {
		t.Errorf("the instance is told %v, in the trace %s", told, theTrace)
	}
	call.Start(waketrace.Step{Name: SpanWrite, Part: api.PartAutoscaler, Note: "scale of a to 1", Began: at(10 * ms), Ended: at(30 * ms)})
	room.DoneAt(at(500*ms), nil)
	end := room.Start(waketrace.Step{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Instance: "b-0001", Began: at(time.Second)})
	end.DoneAt(at(3*time.Second), nil)
	(*waketrace.Span)(nil).Start(waketrace.Step{Name: SpanWrite}).Done(nil) // of no wake
	call.DoneAt(at(4*time.Second), nil)
	s.Awake(api.InstanceStatus{Function: tiny, Instance: "a-0001"}, PathCold, at(5*time.Second))
	room.Start(waketrace.Step{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Instance: "b-0001"}) // it is over
	o := s.List(tiny)[0]
	got := recordText(o)
	for _, want := range []string{"\n    autoscaler API write: 10ms +20ms (scale of a to 1)\n", "\nkubernetes victim's end of b-0001: 1s +2s\n"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("not once %q in\n%s", want, got)
		}
	}
	if o.Path != PathColdFreed {
		t.Errorf("the path is %s", o.Path)
	}
	s.Woken(seenWake(tiny, "a-0001", now), PathCold, at(6*time.Second))
	if got := recordText(s.List(tiny)[0]); strings.Count(got, "victim's end") != 1 || !strings.Contains(got, "  autoscaler decision: ") {
		t.Errorf("not one end of one victim, and the decision, in\n%s", got)
	}
}

// TestStepsOfTheirOwnCall: an instance's steps are shown below the call that they are of,
// and below no other.
func TestStepsOfTheirOwnCall(t *testing.T) {
	for _, x := range []struct {
		span string // empty: the call's
		want int
	}{{"", 2}, {"00f067aa0ba902b7", 1}, {"none", 1}} {
		s, now := newStore(t, nil), time.Now()
		call, told := s.Startup(tiny, "a-0001", true, "it is wanted", now)
		call.DoneAt(now.Add(time.Second), nil)
		if told.Span != call.Trace().Span {
			t.Errorf("a wake is told %v, and its call is %v", told, call.Trace())
		}
		st := api.InstanceStatus{Function: tiny, Instance: "a-0001", Steps: []api.Step{{Name: api.StepWaking, Took: ms}}, StepsSpan: x.span}
		if x.span == "" {
			st.StepsSpan = told.Span
		} else if x.span == "none" {
			st.StepsSpan = ""
		}
		s.Awake(st, PathHot, now.Add(time.Second))
		if o := s.List(tiny)[0]; len(o.Spans) != x.want {
			t.Errorf("with the steps of %q the record is %s", x.span, recordText(o))
		}
	}
}

// TestWhatFailedBefore is part of the wake, and another instance that came up beside is not.
func TestWhatFailedBefore(t *testing.T) {
	s, now := newStore(t, nil), time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	s.Demand(waitsOf(now), 1, now)
	failed, _ := s.Startup(tiny, "a-0001", true, "it is wanted", now)
	failed.Done(errors.New("no memory"))
	s.Startup(tiny, "a-0002", false, "it is wanted", at(time.Second))
	s.Startup(tiny, "a-0003", false, "two are wanted", at(time.Second))
	s.Awake(api.InstanceStatus{Function: tiny, Instance: "a-0002"}, PathCold, at(3*time.Second))
	got := recordText(s.List(tiny)[0])
	if !strings.Contains(got, "wake call of a-0001") || !strings.Contains(got, "(no memory)") || strings.Contains(got, "a-0003") || strings.Count(got, "start call") != 1 {
		t.Errorf("got\n%s", got)
	}
}

// TestSpansAreExported: those of a wake that no request asked for, and of one whose client wants none exported.
func TestSpansAreExported(t *testing.T) {
	sink := tracetest.NewSpanRecorder()
	s, now := newStore(t, waketrace.ExportTo(sink)), time.Now()
	s.Startup(tiny, "a-0001", false, "one is always awake", now)
	s.Awake(api.InstanceStatus{Function: tiny, Instance: "a-0001"}, PathCold, now.Add(time.Second))
	o := s.List(tiny)[0]
	exported := map[string]string{}
	for _, e := range sink.Ended() {
		if e.SpanContext().TraceID().String() != o.Trace || !e.SpanContext().IsSampled() {
			t.Errorf("%s is of the trace %s", e.Name(), e.SpanContext().TraceID())
		}
		exported[e.SpanContext().SpanID().String()] = e.Name()
	}
	if exported[o.Root] != "wake a" || len(exported) < 2 || !(len(o.Trace) == 32) {
		t.Errorf("the root is not exported: %v of %s", exported, recordText(o))
	}
	d := waitsOf(now)
	d.Trace = strings.TrimSuffix(d.Trace, "01") + "00"
	s.Demand(d, 1, now)
	call, told := s.Startup(tiny, "a-0001", true, "it is wanted", now)
	call.Done(nil)
	if call.SpanContext().IsSampled() || !told.Unsampled {
		t.Error("a span is sampled whose client wants none")
	}
	s.Awake(api.InstanceStatus{Function: tiny, Instance: "a-0001"}, PathHot, now.Add(time.Second))
	if all := s.List(tiny); len(all) != 2 || !all[1].Unsampled || len(all[1].Spans) < 2 {
		t.Errorf("a wake that is not exported is not recorded: %+v", all)
	}
}

// TestRecordsAreBounded checks the bounds for one function and for all.
func TestRecordsAreBounded(t *testing.T) {
	s := newStore(t, nil)
	const functions = allWakes/keptWakes + 10
	for n := range functions {
		name := api.FunctionName(fmt.Sprintf("default/f%d", n))
		for k := range keptWakes + 3 {
			o := seenWake(name, "i", time.Now())
			o.Trace = fmt.Sprintf("%032x", n*1000+k+1)
			s.Woken(o, PathHot, time.Now())
		}
	}
	all := 0
	for n := range functions {
		list := s.List(api.FunctionName(fmt.Sprintf("default/f%d", n)))
		if len(list) > keptWakes {
			t.Errorf("%d records of one function", len(list))
		}
		all += len(list)
	}
	if all > allWakes || all < allWakes/2 {
		t.Errorf("%d records in all, want at most %d and most of them", all, allWakes)
	}
	s.Forget("default/f70")
	if n := len(s.List("default/f70")); n != 0 {
		t.Errorf("%d records of a function that is forgotten", n)
	}
}

// TestStrangeRecords are refused, or cut.
func TestStrangeRecords(t *testing.T) {
	good := func() api.WakeTrace { return seenWake(tiny, "a-0001", time.Now()) }
	for name, spoil := range map[string]func(*api.WakeTrace){
		"no function":    func(o *api.WakeTrace) { o.Function = "" },
		"no instance":    func(o *api.WakeTrace) { o.Instance = "" },
		"no activator":   func(o *api.WakeTrace) { o.Activator = "" },
		"no trace":       func(o *api.WakeTrace) { o.Trace = "" },
		"a short trace":  func(o *api.WakeTrace) { o.Trace = "abc" },
		"a root of zero": func(o *api.WakeTrace) { o.Root = "0000000000000000" },
		"a time before":  func(o *api.WakeTrace) { o.Total = -1 },
		"many spans":     func(o *api.WakeTrace) { o.Spans = make([]api.Span, mostSpans+1) },
	} {
		o := good()
		spoil(&o)
		var refused *api.Error
		if err := checkWake("e", &o); !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	o := good()
	o.Spans = append(o.Spans, api.Span{Name: strings.Repeat("x", 1000), Note: strings.Repeat("y", 5000), After: -5, Took: time.Hour})
	if err := checkWake("e", &o); err != nil {
		t.Fatal(err)
	}
	for _, s := range o.Spans {
		if len(s.Name) > 305 || len(s.Note) > 305 || s.After < 0 || s.End() > o.Total {
			t.Errorf("a span is not cut: %+v", s)
		}
	}
}
