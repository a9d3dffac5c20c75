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

// podSteps tells the core Kubernetes' steps for an instance that has become awake, once for each claim: those of the
// pod that claims its devices, or of its own pod, which already exists at the next wake. The caller holds f.mu.
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

// write runs do, a write to the API server, in a span if it belongs to a wake. It returns do's error.
func (f *Fleet) write(ctx context.Context, do func() error, what string, about ...any) error {
	if waketrace.From(ctx) == nil {
		return do()
	}
	_, span := waketrace.Start(ctx, waketrace.Step{Name: api.SpanWrite, Part: api.PartAutoscaler, Note: fmt.Sprintf(what, about...)})
	err := do()
	span.Done(err)
	return err
}

// departs begins the span of the end of a pod that is deleted for a wake. The caller holds f.mu.
func (f *Fleet) departs(p *pod) {
	if p.freed != nil {
		f.departures[p.object.UID] = p.freed.Start(waketrace.Step{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Instance: p.id})
	}
}

// departed ends that span: no process of the pod is left. The caller holds f.mu.
func (f *Fleet) departed(o *corev1.Pod) {
	f.departures[o.UID].Done(nil)
	delete(f.departures, o.UID)
}

// wantSpan returns the span of the first wake that waits for a claim of a function. The caller holds f.mu.
func (r *revision) wantSpan() *waketrace.Span {
	for _, w := range r.wants {
		if w.ctx != nil {
			return waketrace.From(w.ctx)
		}
	}
	return nil
}

// spanOf returns the span of the call that a pod of a pair is bound for, nil if none: its provider's. The caller holds
// f.mu.
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
