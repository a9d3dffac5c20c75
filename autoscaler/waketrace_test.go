package autoscaler

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// waits is a demand of one request that came a moment ago, as an activator with a clock
// that is skew ahead tells it.
func waits(f api.FunctionName, skew time.Duration) api.Demand {
	return api.Demand{Function: f, Activator: "act", Waiting: 1, OldestAge: time.Millisecond, At: time.Now().Add(skew), LastRequest: time.Now(),
		Trace: "00-" + wakeTrace + "-" + wakeRoot + "-01"}
}

// seen is an activator's record of a wake that began at and ends now, by a clock that is skew ahead.
func seen(f api.FunctionName, id api.InstanceID, at time.Time, skew time.Duration) api.WakeTrace {
	return wokenRecord(f, id, at.Add(skew), time.Since(at), time.Second)
}

// paths is how many paths of wakes that a request waited for are counted.
func (w *fleet) paths() int {
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "rouse_wake_seconds" {
			return len(f.GetMetric())
		}
	}
	return 0
}

// TestTraceOfASwap: the whole way, with a victim, by clocks that agree and that don't.
func TestTraceOfASwap(t *testing.T) {
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
			w.a.ObserveWoken(seen(f.spec.Name, "b-0001", began, skew))
			synctest.Wait()
			list := w.a.WakeTraces(f.spec.Name)
			if len(list) != 1 {
				t.Fatalf("skew %s: got %d records, want one: %+v", skew, len(list), list)
			}
			o := list[0]
			got := recordText(o)
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
			if n := w.paths(); n != 1 {
				t.Errorf("got %d paths in the histogram, want 1", n)
			}
		})
	}
}

// TestTraceOfAGrantedWake: the activator woke it, and knows most.
func TestTraceOfAGrantedWake(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.request(f, 1, time.Second)
		pass(2 * time.Minute)
		if got := w.state("a-0001"); got != api.Asleep {
			t.Fatalf("it is %s, want asleep", got)
		}
		began := time.Now()
		time.Sleep(2 * time.Second)
		o := seen("default/a", "a-0001", began, 0)
		o.By = api.PartActivator
		w.a.ObserveWoken(o)
		synctest.Wait()
		list := w.a.WakeTraces("default/a")
		if last := list[len(list)-1]; last.Path != PathHot && last.Path != PathWarm || last.By != api.PartActivator || len(last.Spans) != 2 {
			t.Errorf("got %s", recordText(last))
		}
	})
}

// TestTraceWithoutARequest is complete when the instance is awake.
func TestTraceWithoutARequest(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MinScale = 1 })
		pass(10 * time.Second)
		list := w.a.WakeTraces("default/a")
		if len(list) != 1 || list[0].Path != PathCold || list[0].Activator != "" || list[0].Reason == "" || !(len(list[0].Trace) == 32) {
			t.Fatalf("got %+v", list)
		}
		if n := w.paths(); n != 0 {
			t.Errorf("nobody waited, and %d paths are counted", n)
		}
	})
}

// TestTheSpanOfAVictimEndsWithIt: that it is gone may be known before the call that ends it returns.
func TestTheSpanOfAVictimEndsWithIt(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(5 * time.Second)
		var span *waketrace.Span
		w.a.do(func() {
			span = w.a.wakes.Room("default/b", "a-0001", "", time.Now())
			w.a.instances["a-0001"].span = span
		})
		pass(time.Second)
		w.a.ObserveInstance(api.InstanceStatus{Instance: "a-0001", Function: a.spec.Name, State: api.Gone, Seq: math.MaxUint64})
		synctest.Wait()
		made := span.Span.(sdktrace.ReadOnlySpan)
		if took := made.EndTime().Sub(made.StartTime()); took != time.Second {
			t.Errorf("the span took %s, want 1s", took)
		}
	})
}

// TestTraceOfOneThatIsNamedByOthers: what was done for the ID of before was done for it.
func TestTraceOfOneThatIsNamedByOthers(t *testing.T) {
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := world(t, 4*api.GiB, decide.Policy{})
			w.a.calls.fx = &namer{fleet: w, early: early}
			w.run(func() {
				w.add("tiny", api.GiB, nil)
				began := time.Now()
				w.a.ObserveDemand(waits("default/tiny", 0))
				for range 4 {
					pass(time.Second)
					w.a.ObserveDemand(waits("default/tiny", 0))
				}
				w.a.ObserveWoken(seen("default/tiny", "pod-1", began, 0))
				synctest.Wait()
				list := w.a.WakeTraces("default/tiny")
				if len(list) != 1 || list[0].Path != PathCold {
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

// TestTraceOfOneOfTwo: of the one that was first, without the other.
func TestTraceOfOneOfTwo(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MinScale, f.spec.MaxScale = 2, 2 })
		pass(10 * time.Second)
		list := w.a.WakeTraces("default/a")
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
