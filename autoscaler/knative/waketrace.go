package knative

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// podSteps tells the core what Kubernetes did for an instance that is awake now: for the
// pod that claims its devices, or for its own where it claims them itself, which is there
// when it wakes again. It tells it once for each claim. The caller holds mu.
func (f *Fleet) podSteps(p *pod) {
	m := p.pair.marks
	if p.role == control.RoleInstance {
		if m.Asked = p.seen; !p.wanted.IsZero() {
			m.Asked, m.Created = p.wanted, p.seen
		}
	}
	if m.Asked.IsZero() || m.Asked.Equal(p.traced) {
		return
	}
	p.traced = m.Asked
	var steps []waketrace.Step
	m.Steps(func(name string, began, ended time.Time) {
		steps = append(steps, waketrace.Step{Name: name, Began: began, Ended: ended})
	})
	if len(steps) > 0 {
		f.core.NotePodSteps(p.function, p.id, m.Path, steps...)
	}
}

// write does what changes something at the API server, in a span where it is done for a wake. It returns do's error.
func (f *Fleet) write(ctx context.Context, do func() error, what string, about ...any) error {
	if waketrace.From(ctx) == nil {
		return do()
	}
	_, span := waketrace.Start(ctx, waketrace.Step{Name: api.SpanWrite, Part: api.PartAutoscaler, Note: fmt.Sprintf(what, about...)})
	err := do()
	span.Done(err)
	return err
}

// departs begins the span of the end of a pod that is on its way out for a wake. f.mu is held.
func (f *Fleet) departs(p *pod) {
	if p.freed != nil {
		f.departures[p.object.UID] = p.freed.Start(waketrace.Step{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Instance: p.id})
	}
}

// departed ends it: no process of the pod is left. f.mu is held.
func (f *Fleet) departed(o *corev1.Pod) {
	f.departures[o.UID].Done(nil)
	delete(f.departures, o.UID)
}

// wantSpan is that of the first wake that waits for a claim of a function; f.mu is held.
func (r *revision) wantSpan() *waketrace.Span {
	for _, w := range r.wants {
		if w.ctx != nil {
			return waketrace.From(w.ctx)
		}
	}
	return nil
}

// spanOf is that of the call that a pod of a pair is bound for, nil if none: that of the provider. f.mu is held.
func (f *Fleet) spanOf(p *pod) *waketrace.Span {
	if p.role == control.RoleRequester {
		if r := f.revisions[p.function]; r != nil && r.making[p.pair.bound] != nil {
			return r.making[p.pair.bound].span
		}
		p = f.pods[p.pair.bound]
	}
	if p == nil {
		return nil
	}
	return p.pair.span
}
