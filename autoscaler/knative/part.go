package knative

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

// A pod that is deleted without a stop, because its Service was removed or a newer revision replaced it, is no longer
// an instance. But Knative lets its containers run for most of a minute after their last request, and they hold their
// memory, on GPUs too, which the next model needs. So a joined instance is told to end as soon as its requests have
// ended.

// parting holds the pods to tell.
type parting struct {
	pods []*pod // guarded by the fleet's mutex
	some bell.Bell
}

// part adds a pod that is being deleted. The caller holds f.mu.
func (f *Fleet) part(p *pod) {
	if p.stopping || !p.joined() || p.role != control.RoleInstance || p.object.DeletionTimestamp == nil || p.status.State == api.Gone {
		return
	}
	f.parting.pods = append(f.parting.pods, p)
	f.parting.some.Ring()
}

// keepParting tells them to end, until ctx ends.
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

// grace returns the remaining grace period of a pod that is being deleted.
func grace(p *pod) time.Duration {
	if s := p.object.DeletionGracePeriodSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return time.Second
}
