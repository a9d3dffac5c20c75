package autoscaler

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

const (
	theTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theRoot  = "00f067aa0ba902b7"
)

// waits is a demand of one request that came a moment ago, as an activator with a clock
// that is skew ahead tells it.
func waits(f api.FunctionName, skew time.Duration) api.Demand {
	return api.Demand{Function: f, Activator: "act", Waiting: 1, OldestAge: time.Millisecond, At: time.Now().Add(skew), LastRequest: time.Now(),
		Trace: "00-" + theTrace + "-" + theRoot + "-01"}
}

// seen is an activator's record of a wake that began at and ends now.
func seen(f api.FunctionName, id api.InstanceID, at time.Time) api.Outline {
	o := api.Outline{Function: f, Instance: id, Activator: "act", Trace: theTrace, Root: theRoot, Start: at, Total: time.Since(at)}
	hold := api.Span{ID: "00000000000000a1", Name: api.SpanHold, Part: api.PartActivator, Took: o.Total - time.Second}
	o.Add(hold)
	o.Add(api.Span{ID: o.EventID(), Parent: hold.ID, Name: api.SpanEvent, Part: api.PartAutoscaler, After: time.Millisecond})
	o.Add(api.Span{ID: "00000000000000a2", Name: api.SpanFirstToken, Part: api.PartActivator, After: o.Total - time.Second, Took: time.Second})
	return o
}

// lines is a record as text: each span with its depth, its beginning and its duration.
func lines(o api.Outline) string {
	parents := map[string]string{}
	for _, s := range o.Spans {
		parents[s.ID] = s.Parent
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s in %s\n", o.Path, o.By, o.Total)
	for _, s := range o.Spans {
		for p := s.Parent; parents[p] != ""; p = parents[p] {
			b.WriteString("  ")
		}
		fmt.Fprintf(&b, "%s %s", s.Part, s.Name)
		if s.Who != "" {
			fmt.Fprintf(&b, " of %s", s.Who)
		}
		fmt.Fprintf(&b, ": %s +%s\n", s.After, s.Took)
	}
	return b.String()
}

// counted is how many series a collector has.
func counted(c prometheus.Collector) int {
	series := make(chan prometheus.Metric, 100)
	c.Collect(series)
	return len(series)
}

// TestOutlineOfASwap: the whole way, with a victim, by clocks that agree and that don't.
func TestOutlineOfASwap(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		inWorld(t, 1500*api.MiB, func(w *fleet) {
			a := w.add("a", api.GiB, nil)
			w.request(a, 1, time.Second)
			pass(20 * time.Second) // it has stayed long enough to go
			f := w.add("b", api.GiB, nil)
			began := time.Now()
			time.Sleep(time.Millisecond)
			d := waits(f.spec.Name, skew)
			time.Sleep(time.Millisecond) // the event's way
			w.a.ObserveDemand(d)
			for range 20 {
				pass(time.Second)
				d.At = d.At.Add(time.Second)
				if w.state("b-0001") == api.Awake {
					break
				}
				w.a.ObserveDemand(d)
			}
			awake := time.Now()
			time.Sleep(time.Second)
			w.a.ObserveWoken(seen(f.spec.Name, "b-0001", began))
			synctest.Wait()
			list := w.a.Outlines(f.spec.Name)
			if len(list) != 1 {
				t.Fatalf("skew %s: got %d records, want one: %+v", skew, len(list), list)
			}
			o := list[0]
			got := lines(o)
			for _, want := range []string{
				"cold-freed by autoscaler in ", "\nactivator hold: 0s +", "\n  autoscaler event: 1ms +", "\n  autoscaler decision: ",
				"\n  autoscaler victim's sleep of a-0001: ", "\n  autoscaler start: ", "\n    autoscaler start call: ", "\nactivator first token: ",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("skew %s: no %q in\n%s", skew, want, got)
				}
			}
			if event := "event: 1ms +1ms"; strings.Contains(got, event) != (skew == 0) {
				t.Errorf("skew %s: the event is told wrongly in\n%s", skew, got)
			}
			hold := o.Spans[0]
			for _, s := range o.Spans {
				if s.After < 0 || s.Took < 0 || s.End() > o.Total || s.Part == api.PartAutoscaler && s.End() > hold.End() {
					t.Errorf("skew %s: %s lies at %s for %s, in a hold until %s", skew, s.Name, s.After, s.Took, hold.End())
				}
			}
			if hold.End() > awake.Sub(began)+time.Second {
				t.Errorf("skew %s: the hold ends after %s", skew, hold.End())
			}
			if n := counted(w.a.outlines.wake); n != 1 {
				t.Errorf("got %d paths in the histogram, want 1", n)
			}
		})
	}
}

// TestOutlineOfAGrantedWake: the activator woke it, and knows most.
func TestOutlineOfAGrantedWake(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.request(f, 1, time.Second)
		pass(2 * time.Minute)
		if got := w.state("a-0001"); got != api.Asleep {
			t.Fatalf("it is %s, want asleep", got)
		}
		began := time.Now()
		time.Sleep(2 * time.Second)
		o := seen("default/a", "a-0001", began)
		o.By = api.PartActivator
		w.a.ObserveWoken(o)
		synctest.Wait()
		list := w.a.Outlines("default/a")
		if last := list[len(list)-1]; last.Path != api.PathHot && last.Path != api.PathWarm || last.By != api.PartActivator || len(last.Spans) != 3 {
			t.Errorf("got %s", lines(last))
		}
	})
}

// TestOutlineWithoutARequest is complete when the instance is awake.
func TestOutlineWithoutARequest(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		var exported []api.Outline
		w.a.traces = func(o api.Outline) { exported = append(exported, o) }
		w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MinScale = 1 })
		pass(10 * time.Second)
		list := w.a.Outlines("default/a")
		if len(list) != 1 || list[0].Path != api.PathCold || list[0].Activator != "" || list[0].Reason == "" || !api.ValidTrace(list[0].Trace) {
			t.Fatalf("got %+v", list)
		}
		if diff := cmp.Diff(list, exported); diff != "" {
			t.Error(diff)
		}
		if n := counted(w.a.outlines.wake); n != 0 {
			t.Errorf("nobody waited, and %d paths are counted", n)
		}
	})
}

// TestPodSteps: what Kubernetes did lies in the start, once.
func TestPodSteps(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.load = 5 * time.Second })
		began := time.Now()
		w.a.ObserveDemand(waits(f.spec.Name, 0))
		pass(2 * time.Second)
		step := PodStep{api.SpanScheduled, began.Add(-time.Hour), began.Add(time.Second)}
		w.a.NotePodSteps("default/a", "a-0001", api.PathColdFreed, step, PodStep{api.SpanCreated, began, began.Add(10 * time.Millisecond)})
		w.a.NotePodSteps("default/a", "a-0001", api.PathColdFreed, step)
		w.a.NotePodSteps("default/nobody", "nobody", "", step)
		pass(5 * time.Second)
		o := w.a.Outlines("default/a")[0]
		got := lines(o)
		if o.Path != api.PathColdFreed || strings.Count(got, "  kubernetes scheduled: 0s +") != 1 || !strings.Contains(got, "  kubernetes pod created: ") {
			t.Errorf("got\n%s", got)
		}
	})
}

// TestWork: what is written at the API server lies in the call that it was done for, and a victim's end beside the call to it.
func TestWork(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.load = 5 * time.Second })
		began := time.Now()
		w.a.ObserveDemand(waits(f.spec.Name, 0))
		pass(2 * time.Second)
		call := (api.Trace{ID: theTrace, Span: theRoot}).Child(string(api.PartAutoscaler), api.SpanStart, "2")
		end := Work{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Who: "b-0001", Began: began.Add(time.Second)}
		w.a.NoteWork(call, Work{Name: api.SpanWrite, Part: api.PartAutoscaler, What: "scale of a to 1", Began: began.Add(10 * time.Millisecond), Ended: began.Add(30 * time.Millisecond)})
		w.a.NoteWork(call, end)
		w.a.NoteWork(api.Trace{}, end)
		w.a.NoteWork(api.NewTrace(), end) // of no wake that is known
		end.Ended = began.Add(3 * time.Second)
		w.a.NoteWork(call, end)
		pass(5 * time.Second)
		end.Began = time.Now()
		w.a.NoteWork(call, end) // it is over
		o := w.a.Outlines("default/a")[0]
		got := lines(o)
		for _, want := range []string{"\n    autoscaler API write: 10ms +20ms\n", "\nkubernetes victim's end of b-0001: 1s +2s\n"} {
			if strings.Count(got, want) != 1 {
				t.Errorf("not once %q in\n%s", want, got)
			}
		}
		if n := strings.Count(got, "victim's end"); n != 1 {
			t.Errorf("%d ends of one victim in\n%s", n, got)
		}
	})
}

// TestTheSpanOfAVictimEndsWithIt: that it is gone may be known before the call that ends it returns.
func TestTheSpanOfAVictimEndsWithIt(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(5 * time.Second)
		var span *stretch
		w.a.box.post(func() {
			span = &stretch{name: api.SpanVictim, who: "a-0001", began: time.Now()}
			w.a.instances["a-0001"].span = span
		})
		pass(time.Second)
		w.a.ObserveInstance(api.InstanceStatus{Instance: "a-0001", Function: a.spec.Name, State: api.Gone, Seq: math.MaxUint64})
		synctest.Wait()
		if took := span.ended.Sub(span.began); took != time.Second {
			t.Errorf("the span took %s, want 1s", took)
		}
	})
}

// TestOutlinesAreBounded, those of a function and those of all.
func TestOutlinesAreBounded(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		const functions = allOutlines/keptOutlines + 10
		for n := range functions {
			name := api.FunctionName(fmt.Sprintf("default/f%d", n))
			w.a.PutFunction(api.Function{Name: name}.WithDefaults())
			for range keptOutlines + 3 {
				o := seen(name, "i", time.Now())
				o.Trace = api.NewTrace().ID
				w.a.ObserveWoken(o)
			}
		}
		synctest.Wait()
		all := 0
		for n := range functions {
			list := w.a.Outlines(api.FunctionName(fmt.Sprintf("default/f%d", n)))
			if len(list) > keptOutlines {
				t.Errorf("%d records of one function", len(list))
			}
			all += len(list)
		}
		if all > allOutlines || all < allOutlines/2 {
			t.Errorf("%d records in all, want at most %d and most of them", all, allOutlines)
		}
	})
}

// TestStrangeOutlines are refused, or cut.
func TestStrangeOutlines(t *testing.T) {
	good := func() api.Outline { return seen("default/a", "a-0001", time.Now()) }
	for name, spoil := range map[string]func(*api.Outline){
		"no function":    func(o *api.Outline) { o.Function = "" },
		"no instance":    func(o *api.Outline) { o.Instance = "" },
		"no activator":   func(o *api.Outline) { o.Activator = "" },
		"no trace":       func(o *api.Outline) { o.Trace = "" },
		"a short trace":  func(o *api.Outline) { o.Trace = "abc" },
		"a root of zero": func(o *api.Outline) { o.Root = "0000000000000000" },
		"a time before":  func(o *api.Outline) { o.Total = -1 },
		"many spans":     func(o *api.Outline) { o.Spans = make([]api.Span, mostOutlineSpans+1) },
	} {
		o := good()
		spoil(&o)
		a := &Autoscaler{}
		err := a.Receive(api.NewEvent(api.EventWoken, "/activator/x", "default/a", o))
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	o := good()
	o.Spans = append(o.Spans, api.Span{Name: strings.Repeat("x", 1000), Note: strings.Repeat("y", 5000), After: -5, Took: time.Hour})
	if err := checkOutline("e", &o); err != nil {
		t.Fatal(err)
	}
	for _, s := range o.Spans {
		if len(s.Name) > mostWord+5 || len(s.Note) > mostWord+5 || s.After < 0 || s.End() > o.Total {
			t.Errorf("a span is not cut: %+v", s)
		}
	}
}

// TestOutlineOfOneThatIsNamedByOthers: what was done for the ID of before was done for it.
func TestOutlineOfOneThatIsNamedByOthers(t *testing.T) {
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := world(t, 4*api.GiB, decide.Policy{})
			w.a.fx = &namer{fleet: w, early: early}
			w.run(func() {
				w.add("tiny", api.GiB, nil)
				began := time.Now()
				w.a.ObserveDemand(waits("default/tiny", 0))
				for range 4 {
					pass(time.Second)
					w.a.ObserveDemand(waits("default/tiny", 0))
				}
				w.a.ObserveWoken(seen("default/tiny", "pod-1", began))
				synctest.Wait()
				list := w.a.Outlines("default/tiny")
				if len(list) != 1 || list[0].Path != api.PathCold {
					t.Fatalf("early %t: got %+v", early, list)
				}
				for _, s := range list[0].Spans {
					if s.Who != "" {
						t.Errorf("early %t: %s is told of %s", early, s.Name, s.Who)
					}
				}
			})
			w.wg.Wait()
		})
	}
}

// TestOutlineOfOneOfTwo: of the one that was first, without the other.
func TestOutlineOfOneOfTwo(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MinScale, f.spec.MaxScale = 2, 2 })
		pass(10 * time.Second)
		list := w.a.Outlines("default/a")
		if len(list) == 0 {
			t.Fatal("there is no record")
		}
		for _, o := range list {
			for _, s := range o.Spans {
				if s.Who != "" {
					t.Errorf("the record of %s has a %s of %s", o.Instance, s.Name, s.Who)
				}
			}
		}
	})
}

// TestStepsOfTheirOwnCall: an instance's steps are shown below the call that they are of,
// and below no other.
func TestStepsOfTheirOwnCall(t *testing.T) {
	now := time.Now()
	e := &errand{trace: api.NewTrace(), heard: now}
	wake := e.stretch(stretch{name: api.SpanWake, part: api.PartAutoscaler, who: "a-0001", began: now, ended: now.Add(time.Second)})
	for _, x := range []struct {
		span string
		want int
	}{{wake.id, 2}, {"00f067aa0ba902b7", 1}, {"", 1}} {
		o := api.Outline{Instance: "a-0001", Trace: e.trace.ID, Root: e.trace.Span, Total: time.Second}
		e.into(&o, 0, api.Span{Took: o.Total}, api.InstanceStatus{Steps: []api.Step{{Name: api.StepWaking, Took: time.Millisecond}}, StepsSpan: x.span})
		if len(o.Spans) != x.want {
			t.Errorf("with the steps of %q the record is %s", x.span, lines(o))
		}
	}
}
