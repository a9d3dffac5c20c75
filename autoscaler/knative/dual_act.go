package knative

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// runner runs the calls to pods and the cluster that plans of pairs require.
type runner struct {
	ctx   context.Context
	calls sync.WaitGroup
}

// carryOut begins one action of a plan of pairs. The caller holds f.mu. The action is marked in the state, so that the
// next plan takes it into account.
func (f *Fleet) carryOut(run *runner, a *dualpod.Action) {
	r := f.revisions[a.Function]
	p, requester := f.onePair(a.Provider), f.onePair(a.Requester)
	level := f.log.Debug
	if a.Kind == dualpod.Wake || a.Kind == dualpod.Make || a.Kind == dualpod.Sleep || a.Kind == dualpod.Delete {
		level = f.log.Info
	}
	level("dual pods", "do", a.Kind, "function", a.Function, "requester", a.Requester, "provider", a.Provider, "path", a.Path, "reason", a.Reason)
	switch a.Kind {
	case dualpod.Claim:
		if r != nil {
			r.raising += a.N
			ctx := waketrace.With(run.ctx, r.wantSpan())
			run.calls.Go(func() { f.raise(ctx, r, a.N) })
		}
	case dualpod.Done, dualpod.Wake, dualpod.Make:
		if w := f.takeWant(r, a.Want); w != nil {
			f.satisfy(run, w, a, p, requester)
		}
	case dualpod.Bind:
		tie(requester, p)
	case dualpod.Unbind:
		for _, q := range []*pod{requester, p} {
			if q != nil {
				q.pair.bound, q.pair.since = "", time.Now()
			}
		}
		if requester != nil {
			requester.pair.spent = p != nil && p.pair.down
		}
	case dualpod.Sleep:
		p.pair.busy = true
		run.calls.Go(func() { f.putDown(run.ctx, p, requester) })
	case dualpod.Delete:
		p.stopping = true
		run.calls.Go(func() { f.deletePod(run.ctx, p, shortGrace) })
	case dualpod.Release:
		f.beginRelease(run, r, requester)
	}
	if r != nil {
		f.weigh(r)
	}
	f.pairs.Ring() // and look at what that has made of it
}

// tie binds a requester and a provider to each other.
func tie(requester, p *pod) {
	requester.pair.bound, p.pair.bound = p.id, requester.id
	requester.pair.since, requester.pair.spent = time.Now(), false
}

// onePair returns a pod of a pair by its name; nil if there is none.
func (f *Fleet) onePair(id api.InstanceID) *pod {
	if p := f.pods[id]; p != nil {
		return p
	}
	return f.leaving[id]
}

// takeWant removes a want from its list and returns it; nil if it is gone.
func (f *Fleet) takeWant(r *revision, id int) *want {
	if r == nil {
		return nil
	}
	for _, w := range r.wants {
		if w.id == id && w.ctx != nil {
			w.close()
			return w
		}
	}
	return nil
}

// satisfy begins the action that serves a want. The caller holds f.mu.
func (f *Fleet) satisfy(run *runner, w *want, a *dualpod.Action, p, requester *pod) {
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
	case dualpod.Done:
		w.done <- wanted{status: p.status}
	case dualpod.Wake:
		if requester != nil {
			tie(requester, p)
		}
		p.pair.busy, p.pair.down, p.pair.marks, p.pair.since = true, false, w.marks, time.Now()
		p.pair.span = waketrace.From(w.ctx)
		run.calls.Go(func() { f.wakePair(w, p) })
	case dualpod.Make:
		id := api.InstanceID(dualpod.Name(w.r.name.Name(), strings.ToLower(rand.Text()[:6])))
		m := &making{node: a.Node, devices: a.Devices, epoch: w.grant.Epoch, silent: w.provider == "", since: time.Now(), marks: w.marks, span: waketrace.From(w.ctx), start: w.grant.Trace}
		if requester != nil {
			m.requester = requester.id
			requester.pair.bound, requester.pair.since, requester.pair.spent = id, time.Now(), false
		}
		w.r.making[id] = m
		for _, other := range a.Delete {
			if q := f.pods[other]; q != nil {
				q.stopping, q.freed = true, m.span
			}
		}
		run.calls.Go(func() { f.makeProvider(waketrace.With(run.ctx, m.span), w, id, m, requester, a.Delete) })
	}
}

// wakePair wakes the sleeper that was chosen for a want.
func (f *Fleet) wakePair(w *want, p *pod) {
	f.mu.Lock()
	g, i := w.grant, p.status
	if p.id != w.provider {
		g.Epoch = max(g.Epoch, p.status.Epoch+1, p.epoch+1)
	}
	g.Instance, g.Devices = p.id, p.devices
	p.epoch = max(p.epoch, g.Epoch)
	f.mu.Unlock()
	s, err := f.call(i, func(p *pod) *bool { return &p.rising }, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Wake(w.ctx, e, g)
	})
	f.mu.Lock()
	p.pair.busy, p.pair.down = false, p.status.State == api.Asleep
	f.mu.Unlock()
	f.pairs.Ring()
	w.done <- wanted{s, err}
}

// makeProvider creates a provider's pod, after deleting those that have to go first.
func (f *Fleet) makeProvider(ctx context.Context, w *want, id api.InstanceID, m *making, requester *pod, others []api.InstanceID) {
	err := f.clear(w.ctx, others)
	if err == nil {
		err = f.create(ctx, w.r, id, m, requester)
	}
	f.mu.Lock()
	if err != nil {
		delete(w.r.making, id)
		if requester != nil && requester.pair.bound == id {
			requester.pair.bound, requester.pair.since = "", time.Now()
		}
		w.r.trouble = &trouble{"ProviderNotMade", err.Error()}
	}
	f.mu.Unlock()
	f.pairs.Ring()
	f.changed(w.r.name)
	w.done <- wanted{api.InstanceStatus{Instance: id, Function: w.r.name, State: api.Starting, Since: time.Now(), Devices: m.devices, Node: m.node}, err}
}

// clear deletes providers and returns when none of their processes is left.
func (f *Fleet) clear(ctx context.Context, ids []api.InstanceID) error {
	for _, id := range ids {
		f.mu.Lock()
		p := f.pods[id]
		f.mu.Unlock()
		if p != nil {
			f.deletePod(ctx, p, shortGrace)
		}
	}
	for _, id := range ids {
		err := poll(ctx, 50*time.Millisecond, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			q := f.leaving[id]
			return f.pods[id] == nil && (q == nil || finished(q.object))
		})
		if err != nil {
			return fmt.Errorf("wait until the sleeper %s has made room: %w", id, err)
		}
	}
	return nil
}

// create creates a provider's pod, and takes it in.
func (f *Fleet) create(ctx context.Context, r *revision, id api.InstanceID, m *making, requester *pod) error {
	rev, err := f.watch.revisions.Lister().Revisions(r.name.Namespace()).Get(r.name.Name())
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	d, err := f.deployment(r.name)
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	from := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	from.Namespace = r.name.Namespace()
	f.mu.Lock()
	if requester != nil {
		from = requester.object
	}
	spec := r.spec
	f.mu.Unlock()
	o, err := dualpod.Derive(from, dualpod.ProviderPod{Name: string(id), Revision: rev.Name, RevisionUID: rev.UID, Node: m.node,
		Devices: m.devices, Requester: string(m.requester), Patch: spec.ProviderPatch})
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	var made *corev1.Pod
	err = f.write(ctx, func() (err error) {
		made, err = f.deps.Kube.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
		return err
	}, "pod %s", id)
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource") {
		return fmt.Errorf("make the provider %s: %w: install Rouse with the overlay that may make pods: kubectl apply -k manifests/overlays/dual-pods", id, err)
	}
	if err != nil {
		return fmt.Errorf("make the provider %s: %w", id, err)
	}
	f.onPod(made)
	return nil
}

// Grace periods of pods that are no longer needed. The queue-proxy's own would hold the claim for half a minute; a
// provider has to end its runtime.
const (
	claimGrace int64 = 1
	shortGrace int64 = 10
)

// deletePod deletes a pod, or shortens the grace period of one that is being deleted.
func (f *Fleet) deletePod(ctx context.Context, p *pod, grace int64) {
	f.mu.Lock()
	o := p.object
	f.mu.Unlock()
	err := f.write(ctx, func() error {
		return f.deps.Kube.CoreV1().Pods(o.Namespace).Delete(ctx, o.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &o.UID}})
	}, "deletion of %s", p.id)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		f.log.Warn("a pod of a pair can't be deleted", "pod", p.id, "error", err)
	}
}

// putDown puts a provider to sleep whose claim is going.
func (f *Fleet) putDown(ctx context.Context, p, requester *pod) {
	f.mu.Lock()
	i, epoch, drain := p.status, max(p.status.Epoch, p.epoch)+1, mostDrain
	if requester != nil && requester.object.DeletionGracePeriodSeconds != nil {
		drain = min(drain, max(time.Second, time.Duration(*requester.object.DeletionGracePeriodSeconds)*time.Second-emptyTimeout))
	}
	level := max(api.Level1, f.sleepLevel(p.function))
	f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, drain+emptyTimeout, errors.New("it takes longer than draining may"))
	defer cancel()
	_, err := f.Sleep(ctx, i, level, epoch, api.Drain{Limit: drain})
	f.mu.Lock()
	p.pair.busy = false
	if err != nil && !p.ended {
		p.pair.stuck = true
		f.log.Warn("a provider whose claim goes can't be put to sleep", "provider", p.id, "error", err)
	}
	f.mu.Unlock()
	f.pairs.Ring()
}

// mostDrain bounds how long requests may run on after their claim's deletion began.
const mostDrain = 30 * time.Second

func (f *Fleet) sleepLevel(name api.FunctionName) api.Level {
	if r := f.revisions[name]; r != nil {
		return r.spec.SleepLevel
	}
	return api.Level1
}

// dispose deletes a provider's pod and returns when its deletion has begun.
func (f *Fleet) dispose(ctx context.Context, p *pod) error {
	f.mu.Lock()
	p.stopping, p.freed = true, waketrace.From(ctx)
	f.mu.Unlock()
	f.pairs.Ring()
	f.deletePod(ctx, p, shortGrace)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-p.gone:
			return nil
		case <-again.C:
			f.deletePod(ctx, p, shortGrace)
		case <-ctx.Done():
			return fmt.Errorf("stop %s: its pod is not deleted: %w", p.id, context.Cause(ctx))
		}
	}
}

// patchPair is the type of patches of a pod's marks: it merges lists of finalizers.
const patchPair = types.StrategicMergePatchType
