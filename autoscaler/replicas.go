package autoscaler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// replicas is the replica signal: how many instances of each function should be awake, and how many are, for
// autoscalers that scale by it. It exports each metric under Rouse's own name and under the name of llm-d's Workload
// Variant Autoscaler, so that an HPA or ScaledObject written for the latter works unchanged. Prometheus renames their
// label namespace to exported_namespace when it scrapes them from a pod.
type replicas struct {
	desired, current                  *prometheus.Desc
	wvaDesired, wvaCurrent, wvaDegree *prometheus.Desc
}

// count is the signal of one function.
type count struct {
	function         api.FunctionName
	model            api.ModelName
	desired, current int
}

func newReplicas() replicas {
	ours, theirs := []string{"namespace", "variant_name", "model"}, []string{"namespace", "variant_name"}
	return replicas{
		desired:    prometheus.NewDesc("rouse_desired_replicas", "Instances of a function that should be awake.", ours, nil),
		current:    prometheus.NewDesc("rouse_current_replicas", "Instances of a function that are awake.", ours, nil),
		wvaDesired: prometheus.NewDesc("wva_desired_replicas", "rouse_desired_replicas by the name of the Workload Variant Autoscaler.", theirs, nil),
		wvaCurrent: prometheus.NewDesc("wva_current_replicas", "rouse_current_replicas by the name of the Workload Variant Autoscaler.", theirs, nil),
		wvaDegree:  prometheus.NewDesc("wva_desired_ratio", "Desired by current replicas; where none is awake, the desired ones.", theirs, nil),
	}
}

func (r replicas) describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.desired, r.current, r.wvaDesired, r.wvaCurrent, r.wvaDegree} {
		c <- d
	}
}

func (r replicas) collect(gauge func(*prometheus.Desc, float64, ...string), counts []count) {
	for _, n := range counts {
		namespace, name := n.function.Namespace(), n.function.Name()
		desired, current := float64(n.desired), float64(n.current)
		gauge(r.desired, desired, namespace, name, string(n.model))
		gauge(r.current, current, namespace, name, string(n.model))
		gauge(r.wvaDesired, desired, namespace, name)
		gauge(r.wvaCurrent, current, namespace, name)
		gauge(r.wvaDegree, desired/max(1, current), namespace, name)
	}
}

// counts returns the signal of all declared functions.
func (a *loop) counts(now time.Time) []count {
	out := make([]count, 0, len(a.order))
	for _, f := range a.order {
		if f.Undeclared || f.removed {
			continue
		}
		n := count{function: f.Spec.Name, model: f.Spec.Model, desired: a.desired(f, now)}
		for _, i := range f.Instances {
			if i.Status.State == api.Awake {
				n.current++
			}
		}
		out = append(out, n)
	}
	return out
}

// desired returns how many instances of f should be awake: those that a plan wants, and those needed within
// SleepAfter, which it keeps. Without the latter the signal would drop in every pause between two requests.
func (a *loop) desired(f *function, now time.Time) int {
	d := decide.Desired(&f.Function, now)
	if f.Order != decide.OrderNone || f.Function.Scale.On(now) {
		return d
	}
	for n := min(len(f.NeededAt), max(1, f.Spec.MaxScale)); n > d; n-- {
		if f.Spec.SleepAfter == 0 || f.NeededAt[n-1].Add(f.Spec.SleepAfter).After(now) {
			return n
		}
	}
	return d
}
