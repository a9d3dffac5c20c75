package autoscaler

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

// awakeOf counts the instances of a function that are awake.
func (w *fleet) awakeOf(f *fakeFunction) int {
	v, _ := w.a.Status(f.spec.Name)
	n := 0
	for _, i := range v.Instances {
		if i.State == api.Awake {
			n++
		}
	}
	return n
}

// What somebody outside wants is floor and ceiling, until it ends.
func TestScale(t *testing.T) {
	inWorld(t, 8*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MaxScale = 4 })
		set := func(n int, d time.Duration) {
			t.Helper()
			if err := w.a.Scale(w.t.Context(), f.spec.Name, n, d, "a brain"); err != nil {
				t.Fatal(err)
			}
		}
		want := func(n int) {
			t.Helper()
			if got := w.awakeOf(f); got != n {
				t.Errorf("%d are awake, want %d\n%s", got, n, w.transcript())
			}
		}
		// 1. Without demand, for longer than an idle one would stay; bounded by max-scale.
		set(9, 10*time.Minute)
		pass(9 * time.Minute)
		want(4)
		// 2. Fewer sleep at once.
		set(1, time.Minute)
		pass(time.Second)
		want(1)
		// 3. Scale 0: requests wake nothing, and no grant is out.
		set(0, time.Minute)
		pass(time.Second)
		want(0)
		w.request(f, 1, time.Second)
		pass(30 * time.Second)
		want(0)
		if v, _ := w.a.Status(f.spec.Name); v.Waiting != 1 || len(v.Granted) > 0 || !strings.Contains(v.Waits, "a brain wants 0 until") || v.Scale == nil {
			t.Errorf("%d wait, granted %v, %q: want one that waits for the end of the scale, and no grant", v.Waiting, v.Granted, v.Waits)
		}
		// 4. It ends: demand decides again, and later idleness.
		pass(30 * time.Second)
		want(1)
		pass(2 * time.Minute)
		want(0)
		if v, _ := w.a.Status(f.spec.Name); v.Scale != nil || len(v.Granted) == 0 {
			t.Errorf("%+v: want no scale, and a grant again", v)
		}
		why := ""
		for _, d := range w.a.Why(f.spec.Name) {
			why += d.Action + " " + d.Reason + "\n"
		}
		for _, part := range []string{"scale a brain wants 9 until ", "; within min-scale 0 and max-scale 4 that is 4", "start 3 awake or on the way, a brain wants 9", "sleep 4 awake, a brain wants 1"} {
			if !strings.Contains(why, part) {
				t.Errorf("why does not say %q:\n%s", part, why)
			}
		}
	})
}

func TestScaleRefuses(t *testing.T) {
	inWorld(t, api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		for want, try := range map[string]func() error{
			"want 0 to":            func() error { return w.a.Scale(w.t.Context(), f.spec.Name, -1, time.Minute, "") },
			"want 1s to":           func() error { return w.a.Scale(w.t.Context(), f.spec.Name, 1, 0, "") },
			"there is no function": func() error { return w.a.Scale(w.t.Context(), "default/none", 1, time.Minute, "") },
		} {
			if err := try(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

// The replica signal holds over pauses, and goes with its function.
func TestReplicaSignal(t *testing.T) {
	inWorld(t, 8*api.GiB, func(w *fleet) {
		r := prometheus.NewRegistry()
		w.a.metrics.register(r)
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MaxScale = 4 })
		const labels = " model=a namespace=default variant_name=a"
		signal := func(desired, current float64) {
			t.Helper()
			got := gather(t, r)
			for name, want := range map[string]float64{
				"rouse_desired_replicas" + labels: desired, "rouse_current_replicas" + labels: current,
				"wva_desired_replicas namespace=default variant_name=a": desired, "wva_current_replicas namespace=default variant_name=a": current,
				"wva_desired_ratio namespace=default variant_name=a": desired / max(1, current),
			} {
				if v, found := got[name]; !found || v != want {
					t.Errorf("%s: %g (%t), want %g", name, v, found, want)
				}
			}
		}
		pass(time.Second)
		signal(0, 0)
		w.request(f, 1, 5*time.Second)
		pass(time.Second)
		signal(1, 0)
		pass(time.Minute)
		signal(1, 1)
		if err := w.a.Scale(w.t.Context(), f.spec.Name, 3, time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		signal(3, 1)
		pass(10 * time.Minute)
		signal(0, 0)
		w.a.RemoveFunction(f.spec.Name)
		pass(10 * time.Minute)
		for name := range gather(t, r) {
			if strings.Contains(name, "variant_name") {
				t.Errorf("%s outlives its function", name)
			}
		}
	})
}
