package knative

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
)

// orders calls the control paths of instances.
type orders struct {
	*state
	rooms   *rooms
	resizer *resizer
	tracker *tracker
}

// callInstance sets the mark meanwhile, and takes in the returned status. The epoch, 0 for none, is recorded first: a
// new process in the pod is told the highest one, which voids orders still on their way. It locks.
func (od *orders) callInstance(i api.InstanceStatus, epoch uint64, mark func(*pod) *bool, do func(*control.Client, api.Endpoint) (api.InstanceStatus, error)) (api.InstanceStatus, error) {
	od.mu.Lock()
	if p := od.pods[i.Instance]; p != nil {
		p.epoch = max(p.epoch, epoch)
	}
	od.mu.Unlock()
	set := func(v bool) {
		od.mu.Lock()
		defer od.mu.Unlock()
		if p := od.pods[i.Instance]; p != nil && mark != nil {
			*mark(p) = v
			od.tracker.planPairOf(p)
			od.changed(p.function)
		}
	}
	client, endpoint, err := od.Reach(i.Instance)
	if err != nil {
		return i, err
	}
	set(true)
	defer set(false)
	s, err := do(client, endpoint)
	if err != nil {
		return i, err
	}
	od.mu.Lock()
	defer od.mu.Unlock()
	if p := od.pods[i.Instance]; p != nil {
		s = od.tracker.completeStatus(p, s)
		if s.Supersedes(p.status) {
			od.tracker.publishStatus(p, s)
		}
	}
	return s, nil
}

// Reach returns a client and the endpoint of an instance's control paths, or an *[api.Error] with status 404.
func (od *orders) Reach(id api.InstanceID) (*control.Client, api.Endpoint, error) {
	od.mu.Lock()
	defer od.mu.Unlock()
	p := od.pods[id]
	if p == nil || !p.joined() {
		return nil, "", api.Errorf(http.StatusNotFound, "", "the instance %s has not joined", id)
	}
	return p.client, p.endpoint, nil
}

// Sleep implements [autoscaler.Effects].
func (od *orders) Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
	s, err := od.callInstance(i, epoch, func(p *pod) *bool { return &p.falling }, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Sleep(ctx, e, control.SleepRequest{Level: level, Epoch: epoch, Drain: drain.Limit, Move: drain.Move})
	})
	if err != nil || i.Spare == nil || s.State != api.Asleep {
		return s, err
	}
	od.resizer.shrinkPod(ctx, i.Instance)
	od.mu.Lock()
	defer od.mu.Unlock()
	if p := od.pods[i.Instance]; p != nil {
		s = od.tracker.completeStatus(p, s)
	}
	od.rooms.updateRooms() // first: what it has given up no longer counts as coming
	return s, nil
}

// Fence implements [autoscaler.Effects].
func (od *orders) Fence(ctx context.Context, i api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	return od.callInstance(i, epoch, nil, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Fence(ctx, e, control.FenceRequest{Epoch: epoch})
	})
}

// Adapt implements [autoscaler.Effects].
func (od *orders) Adapt(ctx context.Context, i api.InstanceStatus, list []api.Adapter) error {
	_, err := od.callInstance(i, 0, nil, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Adapters(ctx, e, control.AdaptersRequest{Adapters: list})
	})
	return err
}

// State implements [autoscaler.Effects].
func (od *orders) State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error) {
	od.mu.Lock()
	known, expiring := od.pods[i.Instance] != nil, od.tracker.expiringPod(i.Instance) != nil
	od.mu.Unlock()
	if expiring { // the core is told of its end later
		return i, nil
	}
	if !known {
		return api.InstanceStatus{Instance: i.Instance, Function: i.Function, State: api.Gone, Seq: math.MaxUint64, Since: time.Now()}, nil
	}
	return od.callInstance(i, 0, nil, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) { return c.State(ctx, e) })
}

// emptyInstance has an instance drain and release its memory. It reports whether nothing is left that takes time to end.
func (od *orders) emptyInstance(ctx context.Context, p *pod, epoch uint64, drain api.Drain) bool {
	od.mu.Lock()
	p.epoch = max(p.epoch, epoch)
	client, endpoint, s := p.client, p.endpoint, p.status
	od.mu.Unlock()
	if client == nil || s.State != api.Awake && s.State != api.Draining && !(s.State == api.Asleep && s.Level < api.Level2) {
		return client != nil && s.State == api.Asleep
	}
	ctx, cancel := context.WithTimeoutCause(ctx, drain.Limit+emptyTimeout, errors.New("it takes longer than draining may"))
	defer cancel()
	_, err := client.Sleep(ctx, endpoint, control.SleepRequest{Level: api.Level2, Epoch: epoch, Move: drain.Move,
		Drain: max(drain.Limit, time.Millisecond)}) // zero would mean no bound
	if err != nil {
		od.log.Debug("an instance that is to end did not fall asleep", "instance", p.id, "error", err)
	}
	return err == nil
}

const emptyTimeout = 10 * time.Second

// endProcess tells an instance to end, and returns when its process is gone. If ctx ends before it returns
// [autoscaler.ErrEnding], and the core is told later.
func (od *orders) endProcess(ctx context.Context, p *pod, drain time.Duration) error {
	od.mu.Lock()
	held := p.expiring
	r := od.revisions[p.function]
	own := r != nil && r.spec.Runtime.Endpoint == "" // else the runtime's container ends with the pod
	client, endpoint := p.client, p.endpoint
	od.mu.Unlock()
	if !held {
		return nil
	}
	if own && client != nil {
		call, cancel := context.WithTimeout(ctx, drain+emptyTimeout)
		defer cancel()
		_, err := client.Stop(call, endpoint, control.StopRequest{Drain: max(drain, time.Millisecond)}) // zero would mean no bound
		if err == nil {
			od.mu.Lock()
			defer od.mu.Unlock()
			od.tracker.reportGone(p)
			return nil
		}
		od.log.Debug("an instance that is to end does not say that it has", "instance", p.id, "error", err)
	}
	select {
	case <-p.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.id, autoscaler.ErrEnding)
	}
}

// abandonStop ends a failed stop, with [autoscaler.ErrEnding] if the end has begun. It locks.
func (od *orders) abandonStop(p *pod, why error) error {
	od.mu.Lock()
	defer od.mu.Unlock()
	p.held = false
	if p.expiring {
		why = autoscaler.ErrEnding
	}
	return fmt.Errorf("stop %s: %w", p.id, why)
}
