package knative

import (
	"fmt"

	"knative.dev/pkg/ptr"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

type census struct {
	awake, asleep int
	// wanted counts those awake that stay so, and those on their way up.
	wanted    int
	problem   string
	elsewhere bool
	trouble   *trouble
	// unplaced is why a pod has no node.
	unplaced string
}

func (f *Fleet) takeCensus(name api.FunctionName) census {
	f.mu.Lock()
	defer f.mu.Unlock()
	var c census
	r := f.revisions[name]
	if r == nil {
		return c
	}
	c.elsewhere = r.elsewhere()
	c.problem, c.trouble, c.wanted = r.problem, r.trouble, len(r.starts)+len(r.wants)
	instances := r.pods
	if r.spec.DualPods {
		instances = r.providers
	}
	for _, p := range instances {
		up := p.status.State == api.Awake
		if up {
			c.awake++
		}
		if p.status.State == api.Asleep {
			c.asleep++
		}
		if p.status.Unplaced() {
			c.unplaced = p.status.Message
		}
		if !p.stopping && !p.falling && (up || p.rising || p.status.State == api.Starting) {
			c.wanted++
		}
	}
	return c
}

const (
	reasonNoTraffic  = "NoTraffic"
	reasonQueued     = "Queued"
	reasonAnnotation = "InvalidDeclaration"
	reasonElsewhere  = "Elsewhere"
)

// writeStatus marks exactly one of active, activating and inactive:
//
//  1. Invalid declaration: inactive. In other clusters: initialized at once, and inactive.
//  2. Never up before: as many as initial-scale and min-scale must be awake once; if both are zero, initialized and inactive.
//  3. As many awake as min-scale wants, at least one: active.
//  4. Some on their way up, or pods not seen yet: activating. Inactive before the first was up would mean failure.
//  5. None wanted: inactive.
func (c census) writeStatus(status *autoscalingv1alpha1.PodAutoscalerStatus, s scaling) {
	status.ActualScale, status.DesiredScale = ptr.Int32(int32(c.awake)), ptr.Int32(int32(c.wanted))
	if c.problem != "" {
		status.MarkInactive(reasonAnnotation, c.problem) // 1
		return
	}
	if c.elsewhere {
		if status.ServiceName != "" {
			status.MarkScaleTargetInitialized()
		}
		status.MarkInactive(reasonElsewhere, "It runs in other clusters ("+config.AnnotationClusters+"): kn rouse why says in which.")
		return
	}
	least := max(s.min, 1)
	if !s.initialized { // 2
		least = max(s.min, s.initial)
		if c.awake >= least && status.ServiceName != "" {
			status.MarkScaleTargetInitialized()
		}
		if least == 0 && c.wanted == 0 {
			status.MarkInactive(reasonNoTraffic, "The function has never been asked for.")
			return
		}
		least = max(least, 1)
	}
	switch {
	case c.awake >= least: // 3
		status.MarkActive()
	case c.wanted > 0, !s.initialized && c.trouble == nil && !s.unreachable: // 4
		message := fmt.Sprintf("%d of %d instances are awake; requests are held until then.", c.awake, max(least, c.wanted))
		if c.unplaced != "" {
			status.MarkActivating(reasonUnschedulable, message+" "+c.unplaced)
			return
		}
		if c.trouble != nil {
			status.MarkActivating(c.trouble.reason, message+" The last start failed: "+c.trouble.message)
			return
		}
		status.MarkActivating(reasonQueued, message)
	case c.trouble != nil: // 5
		status.MarkInactive(c.trouble.reason, c.trouble.message)
	case c.asleep > 0:
		status.MarkInactive(reasonNoTraffic, fmt.Sprintf("No requests: %d asleep.", c.asleep))
	default:
		status.MarkInactive(reasonNoTraffic, "No requests: there is no instance.")
	}
}
