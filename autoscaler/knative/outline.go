package knative

import (
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
)

// outline tells the core what Kubernetes did for an instance that is awake now: for the
// pod that claims its devices, or for its own where it claims them itself. It tells it
// once: a pod that wakes in place has nothing to wait for. The caller holds mu.
func (f *Fleet) outline(p *pod) {
	m := p.pair.marks
	if p.role == control.RoleInstance {
		if p.outlined {
			return
		}
		m.Asked = p.seen
	}
	if m.Asked.IsZero() {
		return
	}
	p.outlined = true
	var steps []autoscaler.PodStep
	for _, s := range m.Spans(m.Asked) {
		steps = append(steps, autoscaler.PodStep{Name: s.Name, Began: m.Asked.Add(s.After), Ended: m.Asked.Add(s.End())})
	}
	if len(steps) > 0 {
		f.core.NotePodSteps(p.function, p.id, steps...)
	}
}
