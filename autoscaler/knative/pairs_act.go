package knative

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/internal/waketrace"
)

// startAction also marks the action in the state for the next plan.
func (pr *pairs) startAction(a *Action) {
	r := pr.revisions[a.Function]
	p, requester := pr.podOrLeaving(a.Provider), pr.podOrLeaving(a.Requester)
	level := pr.log.Debug
	if a.Kind == Wake || a.Kind == Make || a.Kind == Sleep || a.Kind == Delete {
		level = pr.log.Info
	}
	level("dual pods", "do", a.Kind, "function", a.Function, "requester", a.Requester, "provider", a.Provider, "path", a.Path, "reason", a.Reason)
	switch a.Kind {
	case Claim:
		if r != nil {
			r.raising += a.N
			span := r.wantSpan()
			pr.startCall(func(ctx context.Context) { pr.raiseClaims(waketrace.With(ctx, span), r, a.N) })
		}
	case Done, Wake, Make:
		if w := pr.takeWant(r, a.Want); w != nil {
			pr.serveWant(w, a, p, requester)
		}
	case Bind:
		bindPair(requester, p)
	case Unbind:
		for _, q := range []*pod{requester, p} {
			if q != nil {
				q.pair.bound, q.pair.since = "", time.Now()
			}
		}
		if requester != nil {
			requester.pair.spent = p != nil && p.pair.down
		}
	case Sleep:
		p.pair.busy = true
		pr.startCall(func(ctx context.Context) { pr.sleepProvider(ctx, p, requester) })
	case Delete:
		p.stopping = true
		pr.startCall(func(ctx context.Context) { pr.scaler.deletePod(ctx, p, shortGrace) })
	case Release:
		pr.beginRelease(r, requester)
	}
	if r != nil {
		pr.scaler.updateCosts(r)
	}
	pr.pairsDue.Ring()
}

func bindPair(requester, p *pod) {
	requester.pair.bound, p.pair.bound = p.id, requester.id
	requester.pair.since, requester.pair.spent = time.Now(), false
}

func (pr *pairs) takeWant(r *revision, id int) *want {
	if r == nil {
		return nil
	}
	for _, w := range r.wants {
		if w.id == id {
			w.remove()
			return w
		}
	}
	return nil
}

func (pr *pairs) serveWant(w *want, a *Action, p, requester *pod) {
	w.marks.Path, w.marks.Bound = a.Path, time.Now()
	if requester != nil {
		w.marks.Created, w.marks.Scheduled = requester.seen, requester.pair.marks.Scheduled
		w.marks.Started, w.marks.Joined = requester.pair.marks.Started, requester.pair.marks.Joined
	}
	if len(w.r.wants) == 0 {
		for _, q := range w.r.pods { // a requester on another GPU need not wait for another want
			q.pair.spent = q.pair.spent || q != requester && q.pair.bound == ""
		}
	}
	switch a.Kind {
	case Done:
		w.done <- wanted{status: p.status}
	case Wake:
		if requester != nil {
			bindPair(requester, p)
		}
		p.pair.busy, p.pair.down, p.pair.marks, p.pair.since = true, false, w.marks, time.Now()
		p.pair.span = waketrace.From(w.ctx)
		pr.startCall(func(context.Context) { pr.wakePair(w, p) })
	case Make:
		id := api.InstanceID(Name(w.r.name.Name(), strings.ToLower(rand.Text()[:6])))
		m := &making{want: w, requester: requester, node: a.Node, devices: a.Devices, since: time.Now()}
		if requester != nil {
			requester.pair.bound, requester.pair.since, requester.pair.spent = id, time.Now(), false
		}
		w.r.making[id] = m
		span := waketrace.From(w.ctx)
		for _, other := range a.Delete {
			if q := pr.pods[other]; q != nil {
				q.stopping, q.freed = true, span
			}
		}
		pr.startCall(func(ctx context.Context) { pr.makeProvider(waketrace.With(ctx, span), id, m, a.Delete) })
	}
}

// wakePair locks.
func (pr *pairs) wakePair(w *want, p *pod) {
	pr.mu.Lock()
	g, i := w.grant, p.status
	if p.id != w.provider {
		g.Epoch = max(g.Epoch, p.status.Epoch+1, p.epoch+1)
	}
	g.Instance, g.Devices = p.id, p.devices
	pr.mu.Unlock()
	s, err := pr.orders.callInstance(i, g.Epoch, func(p *pod) *bool { return &p.rising }, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Wake(w.ctx, e, g)
	})
	pr.mu.Lock()
	p.pair.busy, p.pair.down = false, p.status.State == api.Asleep
	pr.mu.Unlock()
	pr.pairsDue.Ring()
	w.done <- wanted{s, err}
}

func (pr *pairs) makeProvider(ctx context.Context, id api.InstanceID, m *making, others []api.InstanceID) {
	w := m.want
	err := pr.deleteProviders(w.ctx, others)
	if err == nil {
		err = pr.createProvider(ctx, w.r, id, m)
	}
	pr.mu.Lock()
	if err != nil {
		delete(w.r.making, id)
		if q := m.requester; q != nil && q.pair.bound == id {
			q.pair.bound, q.pair.since = "", time.Now()
		}
		w.r.trouble = &trouble{"ProviderNotMade", err.Error()}
	}
	pr.mu.Unlock()
	pr.pairsDue.Ring()
	pr.changed(w.r.name)
	w.done <- wanted{api.InstanceStatus{Instance: id, Function: w.r.name, State: api.Starting, Since: time.Now(), Devices: m.devices, Node: m.node}, err}
}

func (pr *pairs) deleteProviders(ctx context.Context, ids []api.InstanceID) error {
	for _, id := range ids {
		pr.mu.Lock()
		p := pr.pods[id]
		pr.mu.Unlock()
		if p != nil {
			pr.scaler.deletePod(ctx, p, shortGrace)
		}
	}
	for _, id := range ids {
		err := poll(ctx, 50*time.Millisecond, func() bool {
			pr.mu.Lock()
			defer pr.mu.Unlock()
			q := pr.leaving[id]
			return pr.pods[id] == nil && (q == nil || finished(q.object))
		})
		if err != nil {
			return fmt.Errorf("wait until the sleeper %s has made room: %w", id, err)
		}
	}
	return nil
}

func (pr *pairs) createProvider(ctx context.Context, r *revision, id api.InstanceID, m *making) error {
	rev, err := pr.watch.revisions.Lister().Revisions(r.name.Namespace()).Get(r.name.Name())
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	d, err := pr.deployment(r.name)
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	from := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	from.Namespace = r.name.Namespace()
	pr.mu.Lock()
	if m.requester != nil {
		from = m.requester.object
	}
	spec := r.spec
	pr.mu.Unlock()
	o, err := Derive(from, ProviderPod{Name: string(id), Revision: rev.Name, RevisionUID: rev.UID, Node: m.node,
		Devices: m.devices, Requester: string(m.bound()), Patch: spec.ProviderPatch})
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	var made *corev1.Pod
	err = pr.traceWrite(ctx, func() (err error) {
		made, err = pr.deps.Kube.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
		return err
	}, "pod %s", id)
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource") {
		return fmt.Errorf("make the provider %s: %w: install Rouse with the overlay that may make pods: kubectl apply -k manifests/overlays/dual-pods", id, err)
	}
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	pr.tracker.onPod(made)
	return nil
}

func (pr *pairs) sleepProvider(ctx context.Context, p, requester *pod) {
	pr.mu.Lock()
	i, epoch, drain := p.status, max(p.status.Epoch, p.epoch)+1, mostDrain
	if requester != nil && requester.object.DeletionGracePeriodSeconds != nil {
		drain = min(drain, max(time.Second, time.Duration(*requester.object.DeletionGracePeriodSeconds)*time.Second-emptyTimeout))
	}
	level := api.Level1
	if r := pr.revisions[p.function]; r != nil {
		level = max(level, r.spec.SleepLevel)
	}
	pr.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, drain+emptyTimeout, errors.New("it takes longer than draining may"))
	defer cancel()
	_, err := pr.orders.Sleep(ctx, i, level, epoch, api.Drain{Limit: drain})
	pr.mu.Lock()
	p.pair.busy = false
	if err != nil && !p.ended {
		p.pair.stuck = true
		pr.log.Warn("a provider whose claim goes can't be put to sleep", "provider", p.id, "error", err)
	}
	pr.mu.Unlock()
	pr.pairsDue.Ring()
}

// mostDrain bounds how long requests may run on once their claim is being deleted.
const mostDrain = 30 * time.Second

func (pr *pairs) deleteProvider(ctx context.Context, p *pod) error {
	pr.mu.Lock()
	p.stopping, p.freed = true, waketrace.From(ctx)
	pr.mu.Unlock()
	pr.pairsDue.Ring()
	pr.scaler.deletePod(ctx, p, shortGrace)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-p.gone:
			return nil
		case <-again.C:
			pr.scaler.deletePod(ctx, p, shortGrace)
		case <-ctx.Done():
			return fmt.Errorf("stop %s: its pod is not deleted: %w", p.id, context.Cause(ctx))
		}
	}
}
