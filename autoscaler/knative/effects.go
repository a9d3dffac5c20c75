package knative

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Start implements [autoscaler.Effects]: it raises the scale of the revision's Deployment and returns the name of the new pod.
func (f *Fleet) Start(ctx context.Context, spec api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	d, err := f.deployment(spec.Name)
	if err != nil {
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	f.mu.Lock()
	r := f.revision(spec.Name)
	if r == nil {
		f.mu.Unlock()
		return "", fmt.Errorf("start %s: there is no revision %s of the class %s any more", id, spec.Name, api.Class)
	}
	f.takeOver(r, d)
	if r.spec.DualPods {
		w := f.want(r, g, "")
		f.mu.Unlock()
		s, err := f.await(ctx, w)
		if err != nil {
			return "", fmt.Errorf("start %s: %w", id, err)
		}
		return s.Instance, nil
	}
	if err := f.settle(ctx, r, func() bool { return !r.falling() }); err != nil {
		f.mu.Unlock()
		return "", fmt.Errorf("start %s: wait until the pods that are to go are being deleted: %w", id, err)
	}
	s := f.addStart(r, g)
	f.mu.Unlock()
	f.changed(spec.Name)
	if err = f.setScale(ctx, r, d); err == nil {
		var real api.InstanceID
		if real, err = f.awaitPod(ctx, r, s); err == nil {
			return real, nil
		}
	}
	f.mu.Lock()
	open := f.dropStart(r, s)
	r.trouble = &trouble{"StartFailed", err.Error()}
	f.mu.Unlock()
	f.changed(spec.Name)
	if !open { // its pod came in the meantime
		select {
		case real := <-s.pod:
			return real, nil
		default:
			return "", fmt.Errorf("start %s: %w", id, err)
		}
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := f.setScale(undo, r, d); err != nil {
		f.log.Warn("the scale of a start that failed is not taken back yet", "function", spec.Name, "error", err)
	}
	return "", fmt.Errorf("start %s: %w", id, err)
}

// undoTimeout bounds undoing a failed step.
const undoTimeout = 5 * time.Second

// Wake implements [autoscaler.Effects].
func (f *Fleet) Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	f.mu.Lock()
	if p := f.pods[i.Instance]; p != nil && p.role == control.RoleProvider {
		w := f.want(f.revision(p.function), g, p.id)
		f.mu.Unlock()
		s, err := f.await(ctx, w)
		if err == nil && s.Instance != i.Instance {
			return i, fmt.Errorf("%s: %w", s.Instance, autoscaler.ErrElsewhere)
		}
		return s, err
	}
	f.mu.Unlock()
	f.ordered(i.Instance, g.Epoch)
	if err := f.grow(ctx, i.Instance); err != nil {
		return i, fmt.Errorf("wake %s: %w", i.Instance, err)
	}
	return f.call(i, func(p *pod) *bool { return &p.rising }, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Wake(ctx, e, g)
	})
}

// Sleep implements [autoscaler.Effects].
func (f *Fleet) Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
	f.ordered(i.Instance, epoch)
	s, err := f.call(i, func(p *pod) *bool { return &p.falling }, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Sleep(ctx, e, control.SleepRequest{Level: level, Epoch: epoch, Drain: drain.Limit, Move: drain.Move})
	})
	if err != nil || i.Spare == nil || s.State != api.Asleep {
		return s, err
	}
	f.shrink(ctx, i.Instance)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[i.Instance]; p != nil {
		s = f.own(p, s)
	}
	f.offer() // first, so that what it has given up no longer counts as coming
	return s, nil
}

// Fence implements [autoscaler.Effects].
func (f *Fleet) Fence(ctx context.Context, i api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	f.ordered(i.Instance, epoch)
	return f.call(i, nil, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Fence(ctx, e, control.FenceRequest{Epoch: epoch})
	})
}

// Adapt implements [autoscaler.Effects].
func (f *Fleet) Adapt(ctx context.Context, i api.InstanceStatus, list []api.Adapter) error {
	_, err := f.call(i, nil, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Adapters(ctx, e, control.AdaptersRequest{Adapters: list})
	})
	return err
}

// ordered records the epoch of an order before it is sent: a new process in the pod is told the highest one, so that orders still on their
// way are void.
func (f *Fleet) ordered(id api.InstanceID, epoch uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[id]; p != nil {
		p.epoch = max(p.epoch, epoch)
	}
}

// State implements [autoscaler.Effects].
func (f *Fleet) State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error) {
	f.mu.Lock()
	known, expiring := f.pods[i.Instance] != nil, f.isExpiring(i.Instance) != nil
	f.mu.Unlock()
	if expiring { // the core is told of its end later
		return i, nil
	}
	if !known {
		return api.InstanceStatus{Instance: i.Instance, Function: i.Function, State: api.Gone, Seq: math.MaxUint64, Since: time.Now()}, nil
	}
	return f.call(i, nil, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) { return c.State(ctx, e) })
}

// call calls an instance's control path, with the mark set meanwhile, and takes in the returned status.
func (f *Fleet) call(i api.InstanceStatus, mark func(*pod) *bool, do func(*control.Client, api.Endpoint) (api.InstanceStatus, error)) (api.InstanceStatus, error) {
	set := func(v bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if p := f.pods[i.Instance]; p != nil && mark != nil {
			*mark(p) = v
			f.pairUp(p)
			f.changed(p.function)
		}
	}
	client, endpoint, err := f.Reach(i.Instance)
	if err != nil {
		return i, err
	}
	set(true)
	defer set(false)
	s, err := do(client, endpoint)
	if err != nil {
		return i, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[i.Instance]; p != nil {
		s = f.own(p, s)
		if s.Supersedes(p.status) {
			f.pass(p, s)
		}
	}
	return s, nil
}

// Reach returns a client and the endpoint of an instance's control paths. Its error is an *[api.Error] with status 404 if the instance has
// not joined.
func (f *Fleet) Reach(id api.InstanceID) (*control.Client, api.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[id]
	if p == nil || !p.joined() {
		return nil, "", api.Errorf(http.StatusNotFound, "", "the instance %s has not joined", id)
	}
	return p.client, p.endpoint, nil
}

// Stop implements [autoscaler.Effects]: it drains the instance and has it release its memory, marks the pod as the one to delete, and
// lowers the scale by one. It returns when the pod is being deleted and its process is gone, so that nothing holds memory; see
// [Fleet.finish]. While another pod is on its way up that Kubernetes would delete first, it waits; see [Fleet.yields]. If Kubernetes
// deletes another pod all the same, Stop fails and this pod lives on.
func (f *Fleet) Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error {
	f.mu.Lock()
	p, old := f.pods[i.Instance], f.isExpiring(i.Instance)
	f.mu.Unlock()
	switch {
	case p == nil && old != nil:
		return f.finish(ctx, old, drain.Limit)
	case p == nil:
		return nil
	}
	f.ordered(i.Instance, i.Epoch)
	if p.role == control.RoleProvider {
		f.empty(ctx, p, i.Epoch, drain)
		return f.dispose(ctx, p)
	}
	var noted sync.WaitGroup
	noted.Go(func() { f.noteDevices(ctx, p) })
	f.empty(ctx, p, i.Epoch, drain)
	noted.Wait()
	d, err := f.deployment(i.Function)
	if err != nil {
		return fmt.Errorf("stop %s: %w", i.Instance, err)
	}
	r, err := f.lowerFor(ctx, p, d)
	if err != nil {
		return fmt.Errorf("stop %s: %w", i.Instance, err)
	}
	if r == nil {
		return nil
	}
	if err := f.mark(ctx, p); err != nil {
		f.log.Debug("a pod's deletion cost could not be written", "pod", p.id, "error", err)
	}
	if err := f.setScale(ctx, r, d); err != nil {
		return f.unheld(p, err)
	}
	select {
	case <-p.gone:
		return f.finish(ctx, p, drain.Limit)
	case <-p.swapped:
		return f.unheld(p, errors.New("another pod of the revision was taken by Kubernetes instead"))
	case <-ctx.Done():
		return f.unheld(p, fmt.Errorf("its pod is not deleted though the scale was lowered: %w", context.Cause(ctx)))
	}
}

// lowerFor lowers the wanted scale of p's revision by p and the pods that Kubernetes deletes with it; see [Fleet.yields]. It returns the
// revision, nil if p is being deleted already.
func (f *Fleet) lowerFor(ctx context.Context, p *pod, d *appsv1.Deployment) (*revision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.revision(p.function)
	if r == nil || p.ended {
		return nil, nil
	}
	before, err := f.yields(ctx, r, p)
	if err != nil || p.ended {
		return nil, err
	}
	f.takeOver(r, d)
	if p.status.Unplaced() { // its start took too long
		r.trouble = &trouble{reasonUnschedulable, p.status.Message}
	}
	p.freed, p.held = waketrace.From(ctx), true
	if !p.stopping {
		for _, q := range append(before, p) {
			q.stopping = true
			r.want = max(0, r.want-1)
		}
		select {
		case <-p.swapped: // of an earlier try
		default:
		}
	}
	f.weigh(r)
	return r, nil
}

// empty drains an instance and has it release its memory, if it can be reached.
func (f *Fleet) empty(ctx context.Context, p *pod, epoch uint64, drain api.Drain) {
	f.mu.Lock()
	client, endpoint, s := p.client, p.endpoint, p.status
	f.mu.Unlock()
	if client == nil || s.State != api.Awake && s.State != api.Draining && !(s.State == api.Asleep && s.Level < api.Level2) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drain.Limit+emptyTimeout, errors.New("it takes longer than draining may"))
	defer cancel()
	_, err := client.Sleep(ctx, endpoint, control.SleepRequest{Level: api.Level2, Epoch: epoch, Move: drain.Move,
		Drain: max(drain.Limit, time.Millisecond)}) // zero would mean no bound
	if err != nil {
		f.log.Debug("an instance that is to end did not fall asleep", "instance", p.id, "error", err)
	}
}

// emptyTimeout is how long a sleep may take beyond its draining before the pod is deleted anyway.
const emptyTimeout = 10 * time.Second

// Grant implements [autoscaler.Effects].
func (f *Fleet) Grant(ctx context.Context, g api.Grant) error { return f.deps.Activators.Grant(ctx, g) }

// Revoke implements [autoscaler.Effects].
func (f *Fleet) Revoke(ctx context.Context, g api.Grant) error {
	return f.deps.Activators.Revoke(ctx, g)
}

// Fail implements [autoscaler.Effects].
func (f *Fleet) Fail(ctx context.Context, name api.FunctionName, err *api.Error) error {
	return f.deps.Activators.Fail(ctx, name, err)
}
