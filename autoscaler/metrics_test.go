package autoscaler

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

func TestMetrics(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		r := prometheus.NewRegistry()
		w.a.metrics.register(r)
		f := w.add("a", api.GiB, nil)
		for name := range gather(t, r) {
			if strings.HasPrefix(name, "rouse_autoscaler_hot_share") {
				t.Errorf("%s is told, and nobody ever was awake", name)
			}
		}
		w.request(f, 1, time.Second)
		pass(2 * time.Minute)
		got := gather(t, r)
		want := map[string]float64{
			"rouse_autoscaler_decisions_total action=start":            1,
			"rouse_autoscaler_decisions_total action=sleep":            1,
			"rouse_autoscaler_decisions_total action=grant":            1,
			"rouse_autoscaler_grants":                                  1,
			"rouse_autoscaler_instances state=asleep":                  1,
			"rouse_autoscaler_instances state=awake":                   0,
			"rouse_autoscaler_device_bytes device=host state=reserved": float64(api.GiB),
			"rouse_autoscaler_device_bytes device=host state=capacity": float64(4 * api.GiB),
			"rouse_autoscaler_wake_seconds path=cold":                  1,
			"rouse_autoscaler_hot_share placement=in-place":            0,
		}
		for name, v := range want {
			if g, found := got[name]; !found || g != v {
				t.Errorf("%s: got %g (%t), want %g", name, g, found, v)
			}
		}
		w.request(f, 1, time.Second)
		pass(time.Minute)
		if share := gather(t, r)["rouse_autoscaler_hot_share placement=in-place"]; share != 0.5 {
			t.Errorf("after a start and a wake the hot share is %g, want 0.5", share)
		}
		if got["rouse_autoscaler_plan_seconds"] < 5 {
			t.Errorf("got %g plans, want some", got["rouse_autoscaler_plan_seconds"])
		}
	})
}

// gather reads all metrics: counters and gauges by value, histograms by count.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}
