package knative

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/config"
)

func (tr *tracker) examine(p *pod, now time.Time) {
	if p.stopping {
		return
	}
	tr.dropMovedPod(p)
	_, s := container(p.object)
	if p.joined() {
		if s != nil && s.RestartCount > p.restarts {
			tr.processEnded(p, describeEnd(p.object, s))
		} else if s != nil && s.State.Terminated != nil && s.RestartCount == p.restarts {
			tr.processEnded(p, describeEnd(p.object, s))
			p.restarts = s.RestartCount + 1
		}
		if p.joined() {
			return
		}
	}
	if s == nil || s.State.Running == nil {
		p.running = time.Time{}
	} else if p.running.IsZero() {
		p.running = now
	}
	tr.updatePlacement(p, now)
	for _, t := range []*trouble{diagnose(p.object), tr.stranded(p, now), tr.unplaced(p, now)} {
		if t != nil {
			tr.reportTrouble(p, t)
			break
		}
	}
}

// diagnose returns a problem that waiting does not solve:
//
//  1. an image can't be pulled, or a container can't be created
//  2. a container keeps crashing
func diagnose(o *corev1.Pod) *trouble {
	for _, all := range [][]corev1.ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
		for k := range all {
			s := &all[k]
			if s.State.Waiting == nil {
				continue
			}
			w := s.State.Waiting
			switch w.Reason {
			case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError": // 1
				return &trouble{w.Reason, fmt.Sprintf("the image %s of the container %s can't be pulled: %s. Check its name and tag, that the registry is reachable from the nodes, and the imagePullSecrets of the service account",
					s.Image, s.Name, strings.TrimSuffix(w.Message, "."))}
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return &trouble{w.Reason, fmt.Sprintf("the container %s can't be made: %s. Check its command, and the ConfigMaps, Secrets and volumes that it names", s.Name, strings.TrimSuffix(w.Message, "."))}
			case "CrashLoopBackOff": // 2
				return &trouble{crashReason(s), describeEnd(o, s)}
			}
		}
	}
	return nil
}

func adviseRoom(message string) string {
	switch {
	case slices.ContainsFunc(config.GPUResources(), func(r string) bool { return strings.Contains(message, "Insufficient "+r) }):
		return ". GPUs are held by pods, sleeping ones too: share them by time slicing, add a node, or lower the container's limit of GPUs"
	case strings.Contains(message, "Insufficient memory"):
		return ". Lower the container's memory request, or add a node"
	case strings.Contains(message, "Insufficient cpu"):
		return ". Lower the container's CPU request, or add a node"
	case strings.Contains(message, "untolerated taint"):
		return ". Its nodes don't take pods now: look at kubectl describe node, or give the function a toleration"
	case strings.Contains(message, "node affinity/selector"):
		return ". Check the function's node selector against the labels of the nodes"
	case strings.Contains(message, "Insufficient"):
		return ". Lower what the container requests, or add a node"
	}
	return ". Look at kubectl describe pod and kubectl describe node"
}

func crashReason(s *corev1.ContainerStatus) string {
	if t := lastEnd(s); t != nil && t.Reason == "OOMKilled" {
		return t.Reason
	}
	return "CrashLoopBackOff"
}

func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

func describeEnd(o *corev1.Pod, s *corev1.ContainerStatus) string {
	t := lastEnd(s)
	switch {
	case t == nil:
		return fmt.Sprintf("the container %s ended", s.Name)
	case t.Reason == "OOMKilled":
		limit := "none"
		for k := range o.Spec.Containers {
			if c := &o.Spec.Containers[k]; c.Name == s.Name {
				if q, found := c.Resources.Limits[corev1.ResourceMemory]; found {
					limit = q.String()
				}
			}
		}
		return fmt.Sprintf("the container %s was killed because it needed more memory than it may (limit %s): raise its memory limit, or serve a smaller model", s.Name, limit)
	case strings.TrimSpace(t.Message) != "":
		return fmt.Sprintf("the container %s ended with exit code %d: %s", s.Name, t.ExitCode, tail(strings.TrimSpace(t.Message), 600))
	}
	return fmt.Sprintf("the container %s ended with exit code %d (%s) and without a message: look at kubectl logs %s -c %s --previous", s.Name, t.ExitCode, t.Reason, o.Name, s.Name)
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "… " + strings.ToValidUTF8(s[len(s)-n:], "")
}

// stranded reports that a pod waits on a node that is not ready.
func (tr *tracker) stranded(p *pod, now time.Time) *trouble {
	o := p.object
	if o.Spec.NodeName == "" || o.Status.Phase != corev1.PodPending {
		return nil
	}
	n, err := tr.watch.nodes.Lister().Get(o.Spec.NodeName)
	if err != nil {
		return nil
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) >= notReadyFor && now.Sub(p.seen) >= notReadyFor {
			return &trouble{"NodeNotReady", fmt.Sprintf("the pod %s was given to the node %s, which is not ready: %s", o.Name, n.Name, c.Message)}
		}
	}
	return nil
}

const notReadyFor = 30 * time.Second

const joinTimeout = 10 * time.Second

// examineAll locks.
func (tr *tracker) examineAll() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.nodes.updateElastic()
	now := time.Now()
	for _, p := range tr.pods {
		if p.joined() || p.stopping {
			continue
		}
		tr.examine(p, now)
		if e := address(p.object); e != "" && !p.asked && p.trouble == "" && !p.running.IsZero() && now.Sub(p.running) >= joinTimeout {
			p.asked = true
			tr.startCall(func(ctx context.Context) { tr.askWhyNotJoined(ctx, p, e) })
		}
	}
}
