package knative

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
)

// outline tells the core what Kubernetes did for an instance that is awake now: for the
// pod that claims its devices, or for its own where it claims them itself, which is there
// when it wakes again. It tells it once for each claim. The caller holds mu.
func (f *Fleet) outline(p *pod) {
	m := p.pair.marks
	if p.role == control.RoleInstance {
		if m.Asked = p.seen; !p.wanted.IsZero() {
			m.Asked, m.Created = p.wanted, p.seen
		}
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

// write does what changes something at the API server, and tells the core of it where it is done for a wake:
// where ctx carries its trace. It returns do's error.
func (f *Fleet) write(ctx context.Context, do func() error, what string, about ...any) error {
	began := time.Now()
	err := do()
	if t := api.TraceOf(ctx); !t.Zero() {
		w := autoscaler.Work{Name: api.SpanWrite, Part: api.PartAutoscaler, What: fmt.Sprintf(what, about...), Began: began, Ended: time.Now()}
		if err != nil {
			w.What += ": " + err.Error()
		}
		f.core.NoteWork(t, w)
	}
	return err
}

// departure is the end of a pod that goes for a wake.
type departure struct {
	trace api.Trace
	work  autoscaler.Work
}

// departs tells the core that a pod is on its way out, where that is for a wake. f.mu is held.
func (f *Fleet) departs(p *pod) {
	if p.freed.Zero() {
		return
	}
	d := departure{p.freed, autoscaler.Work{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Who: p.id, Began: time.Now()}}
	f.departures[p.object.UID] = d
	f.core.NoteWork(d.trace, d.work)
}

// departed tells the core that no process of a pod is left. f.mu is held.
func (f *Fleet) departed(o *corev1.Pod) {
	d, found := f.departures[o.UID]
	if !found {
		return
	}
	delete(f.departures, o.UID)
	d.work.Ended = time.Now()
	f.core.NoteWork(d.trace, d.work)
}

// wantTrace is the trace of the first wake that waits for a claim of a function; f.mu is held.
func (r *revision) wantTrace() api.Trace {
	for _, w := range r.wants {
		if w.ctx != nil {
			return api.TraceOf(w.ctx)
		}
	}
	return api.Trace{}
}

// traceOf is the trace of the call that a pod of a pair is bound for, the zero value if none: that of the
// provider. f.mu is held.
func (f *Fleet) traceOf(p *pod) api.Trace {
	if p.role == control.RoleRequester {
		if r := f.revisions[p.function]; r != nil && r.making[p.pair.bound] != nil {
			return r.making[p.pair.bound].trace
		}
		p = f.pods[p.pair.bound]
	}
	if p == nil {
		return api.Trace{}
	}
	return p.pair.trace
}
