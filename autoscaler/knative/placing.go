package knative

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Reasons of node autoscalers' events.
const (
	eventScaleUp    = "TriggeredScaleUp"  // the cluster autoscaler adds a node
	eventNoScaleUp  = "NotTriggerScaleUp" // it adds none
	eventNominated  = "Nominated"         // Karpenter has created a node for it, or knows one
	indexPodOfEvent = "pod"
)

var nodeEvents = []string{eventScaleUp, eventNoScaleUp, eventNominated}

func podOfEvent(o any) ([]string, error) {
	e, ok := o.(*corev1.Event)
	if !ok || e.InvolvedObject.Kind != "Pod" {
		return nil, nil
	}
	return []string{e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name}, nil
}

// refusedBy returns the condition by which the scheduler reports that no node fits a pod, or nil.
func refusedBy(o *corev1.Pod) *corev1.PodCondition {
	for k := range o.Status.Conditions {
		c := &o.Status.Conditions[k]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c
		}
	}
	return nil
}

type provision struct {
	adding bool
	says   string
}

// provisioning returns the progress for a pod that fits on no node:
//
//  1. the scheduler makes room on a node
//  2. the last event of a node autoscaler, not older than limit, says that a node is coming
//  3. the last event says that none is added
//  4. there is no event
func provisioning(o *corev1.Pod, events []*corev1.Event, now time.Time, limit time.Duration) provision {
	if n := o.Status.NominatedNodeName; n != "" { // 1
		return provision{true, "room is being made on the node " + n}
	}
	var last *corev1.Event
	for _, e := range events {
		if e.InvolvedObject.UID != "" && e.InvolvedObject.UID != o.UID {
			continue // of another pod with the same name
		}
		if last == nil || lastSeen(e).After(lastSeen(last)) {
			last = e
		}
	}
	switch {
	case last == nil: // 4
		return provision{}
	case last.Reason == eventNoScaleUp: // 3
		return provision{says: "no node is added for it: " + strings.TrimSuffix(last.Message, ".")}
	case now.Sub(lastSeen(last)) >= limit:
		return provision{says: fmt.Sprintf("the node that was being added for it has not come within %s: %s", limit, strings.TrimSuffix(last.Message, "."))}
	}
	return provision{true, "a node is being added for it: " + strings.TrimSuffix(last.Message, ".")} // 2
}

func lastSeen(e *corev1.Event) time.Time {
	t := e.CreationTimestamp.Time
	for _, u := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if u.After(t) {
			t = u
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(t) {
		t = e.Series.LastObservedTime.Time
	}
	return t
}

// updatePlacement updates the stage of a pod that has not joined, and says what keeps it from a node. It gives up
// nothing: the start and each request have their limits.
func (tr *tracker) updatePlacement(p *pod, now time.Time) {
	stage, message := stageCreating, ""
	if c := refusedBy(p.object); c != nil && p.object.Spec.NodeName == "" {
		stage = api.StageUnschedulable
		message = fmt.Sprintf("no node takes the pod %s: %s%s", p.id, strings.TrimSuffix(c.Message, "."), adviseRoom(c.Message))
		does := provisioning(p.object, tr.watch.nodeEvents(p.object), now, tr.cfg.ProvisionTimeout)
		if does.says != "" {
			message += "; " + does.says
		}
		if does.adding {
			stage = api.StageProvisioning
			p.refusedAt = now
		} else if p.refusedAt.IsZero() {
			p.refusedAt = now
		}
	}
	s := p.status
	if s.State != api.Starting || s.Stage != stageCreating && !s.Unplaced() {
		return
	}
	var nodes []string
	if stage != stageCreating {
		s.Requests = requestsOf(p.object)
		nodes = tr.rooms.candidates(p.object, s.Requests)
	}
	if s.Stage == stage && s.Message == message && slices.Equal(s.Candidates, nodes) {
		return
	}
	s.Stage, s.Message, s.Candidates, s.Node = stage, message, nodes, p.object.Spec.NodeName
	s.Seq++
	tr.publishStatus(p, s)
	tr.rooms.updateRooms()
}

const stageCreating = "creating the pod"

// unplaced returns the trouble of a claim without a node within a start's timeout: it has no other limit.
func (tr *tracker) unplaced(p *pod, now time.Time) *trouble {
	r := tr.revisions[p.function]
	if r == nil || p.role != control.RoleRequester || p.status.Stage != api.StageUnschedulable || now.Sub(p.refusedAt) < r.spec.StartTimeout {
		return nil
	}
	return &trouble{reasonUnschedulable, p.status.Message}
}

const reasonUnschedulable = corev1.PodReasonUnschedulable
