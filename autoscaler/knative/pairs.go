package knative

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// pairs carries out the plans of [Plan].
type pairs struct {
	*state
	nodes    *nodes
	scaler   *scaler
	tracker  *tracker
	orders   *orders
	lastWant int
}

type pair struct {
	bound api.InstanceID
	since time.Time
	// stuck: the provider failed to sleep. spent: the requester's provider went to sleep.
	busy, stuck     bool
	spent, released bool
	// down says that the provider sleeps, or is going deeper; used is when it was last awake.
	down  bool
	used  time.Time
	marks Marks
	span  *waketrace.Span // of the call that it must be awake for
}

// want is one instance that must become awake.
type want struct {
	id       int
	r        *revision
	provider api.InstanceID // the chosen sleeper; empty: a new one
	grant    api.Grant
	ctx      context.Context // of the call that waits
	marks    Marks
	done     chan wanted // has room for the one result
}

type wanted struct {
	status api.InstanceStatus
	err    error
}

// making is a provider whose pod is being created.
type making struct {
	want      *want
	requester *pod // that it will be bound to; may be nil
	node      string
	devices   []api.DeviceID
	since     time.Time
}

func (m *making) bound() api.InstanceID {
	if m.requester == nil {
		return ""
	}
	return m.requester.id
}

const unheardFor = 15 * time.Second

func checkDual(fn api.Function) error {
	switch {
	case !fn.DualPods:
		return nil
	case fn.Runtime.Endpoint != "":
		return fmt.Errorf("annotation %s: a sidecar container would run in the pod that only claims GPUs: leave %s out and let the function start its runtime, or leave the annotation out",
			config.AnnotationDualPods, config.AnnotationEndpoint)
	}
	return CheckPatch(fn.ProviderPatch)
}

// addWant's caller holds the mutex.
func (pr *pairs) addWant(ctx context.Context, r *revision, g api.Grant, provider api.InstanceID) *want {
	pr.lastWant++
	w := &want{id: pr.lastWant, r: r, provider: provider, grant: g, ctx: ctx, done: make(chan wanted, 1)}
	w.marks.Asked = time.Now()
	r.wants = append(r.wants, w)
	pr.pairsDue.Ring()
	return w
}

// awaitWant locks.
func (pr *pairs) awaitWant(w *want) (api.InstanceStatus, error) {
	pr.changed(w.r.name)
	defer pr.changed(w.r.name)
	select {
	case d := <-w.done:
		return d.status, d.err
	case <-w.ctx.Done():
	}
	pr.mu.Lock()
	w.remove()
	pr.mu.Unlock()
	pr.pairsDue.Ring()
	return api.InstanceStatus{}, fmt.Errorf("no requester has claimed GPUs for it: %w", context.Cause(w.ctx))
}

func (w *want) remove() {
	w.r.wants = slices.DeleteFunc(w.r.wants, func(x *want) bool { return x == w })
}

func (pr *pairs) spanOf(p *pod) *waketrace.Span {
	if p.role == control.RoleRequester {
		if r := pr.revisions[p.function]; r != nil && r.making[p.pair.bound] != nil {
			return waketrace.From(r.making[p.pair.bound].want.ctx)
		}
		p = pr.pods[p.pair.bound]
	}
	if p == nil {
		return nil
	}
	return p.pair.span
}
