package knative

import (
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
)

// outline tells the core what Kubernetes did for an instance that is awake now: for the
// pod that claims its devices, or for its own where it claims them itself, which is there
// when it wakes again. It tells it once for each claim. The caller holds mu.
func (f *Fleet) outline(p *pod) {
	m := p.pair.marks
	if p.role == control.RoleInstance {
		m.Asked = p.seen
	}
	if m.Asked.IsZero() || m.Asked.Equal(p.outlined) {
		return
	}
	p.outlined = m.Asked
	var steps []autoscaler.PodStep
	for _, s := range m.Spans(m.Asked) {
		steps = append(steps, autoscaler.PodStep{Name: s.Name, Began: m.Asked.Add(s.After), Ended: m.Asked.Add(s.End())})
	}
	if len(steps) > 0 {
		f.core.NotePodSteps(p.function, p.id, m.Path, steps...)
	}
}
