package knative

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
)

// halt stops an instance in the background, for at most a minute.
func (c *cluster) halt(name string) (wait func() error, cancel context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	done := make(chan error, 1) // one answer
	go func() {
		done <- c.fleet.Stop(ctx, api.InstanceStatus{Instance: api.InstanceID(name), Function: tiny}, api.Drain{})
	}()
	synctest.Wait()
	return func() error { defer cancel(); return <-done }, cancel
}

// beside has pod-1 ready and begins to start pod-2.
func beside(t *testing.T, c *cluster) {
	t.Helper()
	c.declare(scaling{initialized: true})
	c.runs("pod-1", "10.0.0.1")
	if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if id, err := c.begin("tiny-00001-0002", api.Grant{Epoch: 3})(); id != "pod-2" || err != nil {
		t.Fatalf("the start got %q and %v, want pod-2", id, err)
	}
}

// TestAStopLeavesTheOneThatStarts: Kubernetes takes a pod that isn't ready before one that is, whatever is
// written on them. So a scale is not lowered for one that is while another comes up.
func TestAStopLeavesTheOneThatStarts(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		beside(t, c)
		wait, cancel := c.halt("pod-1")
		defer cancel()
		time.Sleep(10 * time.Second)
		if s := c.last("pod-2"); s.State == api.Gone || c.replicas() != 2 {
			t.Fatalf("while it starts: pod-2 is %s, %d replicas; want both", s.State, c.replicas())
		}
		c.runs("pod-2", "10.0.0.2")
		if err := wait(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if c.last("pod-1").State != api.Gone || c.last("pod-2").State == api.Gone || c.replicas() != 1 {
			t.Errorf("pod-1 is %s, pod-2 %s, %d replicas; want the first gone, and 1", c.last("pod-1").State, c.last("pod-2").State, c.replicas())
		}
	})
}

// TestAStopAndAStartAtOnce stops a lost instance and starts its replacement in one plan.
func TestAStopAndAStartAtOnce(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		c.hold = true
		started := c.begin("tiny-00001-0002", api.Grant{Epoch: 3})
		stopped, cancel := c.halt("pod-1")
		defer cancel()
		c.follow(20)
		time.Sleep(2 * time.Second)
		c.runs("pod-2", "10.0.0.2")
		if id, err := started(); id != "pod-2" || err != nil {
			t.Errorf("the start got %q and %v, want pod-2", id, err)
		}
		if err := stopped(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if c.last("pod-1").State != api.Gone || c.last("pod-2").State == api.Gone || c.made != 2 {
			t.Errorf("pod-1 is %s, pod-2 %s, %d made; want the first gone, the second there, and no third", c.last("pod-1").State, c.last("pod-2").State, c.made)
		}
	})
}

// TestAStopOfTwo: nobody waits for a pod that is to go itself.
func TestAStopOfTwo(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		beside(t, c)
		one, cancel := c.halt("pod-1")
		defer cancel()
		two, cancel := c.halt("pod-2")
		defer cancel()
		began := time.Now()
		for _, wait := range []func() error{two, one} {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 2*time.Second || c.replicas() != 0 {
			t.Errorf("it took %s and there are %d replicas; want none at once", took, c.replicas())
		}
	})
}

// TestAStopGivesUpWaiting: it says for whom it waited, and nothing has happened.
func TestAStopGivesUpWaiting(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		beside(t, c)
		wait, cancel := c.halt("pod-1")
		defer cancel()
		if err := wait(); err == nil || !strings.Contains(err.Error(), "pod-2") {
			t.Errorf("got %v, want that pod-2 has to be ready", err)
		}
		if c.replicas() != 2 || c.last("pod-1").State == api.Gone || c.last("pod-2").State == api.Gone {
			t.Errorf("%d replicas, pod-1 %s, pod-2 %s; want both as before", c.replicas(), c.last("pod-1").State, c.last("pod-2").State)
		}
		c.runs("pod-2", "10.0.0.2")
		if wait, cancel = c.halt("pod-1"); wait() != nil || c.last("pod-1").State != api.Gone {
			t.Errorf("pod-1 is %s, want that it can be stopped then", c.last("pod-1").State)
		}
		cancel()
	})
}

// TestAStopDoesNotWaitForWhoWaitsForIt: what does not come up may lack the very room that the stop makes. It goes along,
// and what is started then comes up in that room.
func TestAStopDoesNotWaitForWhoWaitsForIt(t *testing.T) {
	for name, hinder := range map[string]func(*corev1.Pod){
		"no node takes it": func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient memory."}}
		},
		"it does not come up": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "user-container", Image: "i",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				beside(t, c)
				wait, cancel := c.halt("pod-1")
				defer cancel()
				time.Sleep(time.Second) // it waits
				c.edit("pod-2", hinder)
				began := time.Now()
				if err := wait(); err != nil || time.Since(began) > 2*time.Second {
					t.Errorf("got %v after %s, want it stopped at once", err, time.Since(began))
				}
				synctest.Wait()
				if s := c.last("pod-2"); s.State != api.Gone || !s.Taken || c.last("pod-1").State != api.Gone || c.replicas() != 0 {
					t.Errorf("pod-1 is %s, pod-2 %s (taken: %t), %d replicas; want none, and that the second has not failed",
						c.last("pod-1").State, s.State, s.Taken, c.replicas())
				}
				if id, err := c.begin("tiny-00001-0003", api.Grant{Epoch: 4})(); id != "pod-3" || err != nil || c.replicas() != 1 {
					t.Errorf("the next start got %q and %v, %d replicas", id, err, c.replicas())
				}
			})
		})
	}
}

// TestWhoseFaultAnEndIs: a pod that is deleted was taken, one that the kubelet ended has ended.
func TestWhoseFaultAnEndIs(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.deletePod("pod-1")
		c.edit("pod-2", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		})
		if err := c.kube.Tracker().Delete(podResource, "default", "pod-3"); err != nil { // by force
			t.Fatal(err)
		}
		synctest.Wait()
		for name, want := range map[string]bool{"pod-1": true, "pod-2": false, "pod-3": true} {
			if s := c.last(name); s.State != api.Gone || s.Taken != want || s.Message == "" {
				t.Errorf("%s is %s, taken: %t (%s); want it gone, taken: %t", name, s.State, s.Taken, s.Message, want)
			}
		}
		for _, r := range c.fleet.revisions {
			if r.trouble != nil {
				t.Errorf("%s is in trouble: %v", r.name, r.trouble)
			}
		}
	})
}
