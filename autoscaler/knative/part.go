package knative

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

// A pod that is deleted though the autoscaler has not stopped it, because its Service was removed or a newer revision
// has taken its place, is no instance any more. But Knative lets its containers go on for
// the better part of a minute after their last request, and all that time they hold their
// memory, on GPUs too, which the next model is about to take. So an instance that had
// joined is told to end as soon as its requests have ended.

// parting are the pods that are to be told.
type parting struct {
	pods []*pod // guarded by the fleet's mutex
	some bell.Bell
}

// part notes that a pod is being deleted. The lock is held.
func (f *Fleet) part(p *pod) {
	if p.stopping || !p.joined() || p.role != control.RoleInstance || p.object.DeletionTimestamp == nil || p.status.State == api.Gone {
		return
	}
	f.parting.pods = append(f.parting.pods, p)
	f.parting.some.Ring()
}

// keepParting tells them, until ctx ends.
func (f *Fleet) keepParting(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	f.parting.some.Each(ctx, func() {
		f.mu.Lock()
		pods := f.parting.pods
		f.parting.pods = nil
		f.mu.Unlock()
		for _, p := range pods {
			calls.Go(func() {
				drain := grace(p)
				ctx, cancel := context.WithTimeout(ctx, drain+emptyTimeout)
				defer cancel()
				if _, err := p.client.Stop(ctx, p.endpoint, control.StopRequest{Drain: drain}); err != nil {
					f.log.Debug("an instance whose pod is being deleted was not told to end", "instance", p.id, "error", err)
				}
			})
		}
	})
}

// grace is how long a pod that is being deleted may go on.
func grace(p *pod) time.Duration {
	if s := p.object.DeletionGracePeriodSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return time.Second
}
