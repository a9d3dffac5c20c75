package knative

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// toldGone reports whether the activators know that an instance is gone.
func (c *cluster) toldGone(id api.InstanceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := len(c.told) - 1; k >= 0; k-- {
		if s := c.told[k].Status; s.Instance == id {
			return s.State == api.Gone
		}
	}
	return false
}

// TestWhatIsStoppedIsGoneWhenItsProcessIs: a pod that is being deleted goes on for half a minute, with all that its model
// server holds. It is told to end, and counts until it has.
func TestWhatIsStoppedIsGoneWhenItsProcessIs(t *testing.T) {
	for name, tt := range map[string]struct {
		answers bool // when it is told to end
		ends    func(p *corev1.Pod)
	}{
		"it says so": {answers: true},
		"its container ends": {ends: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}},
		"its pod ends": {ends: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				c.declare(scaling{initialized: true})
				c.runs("pod-1", "10.0.0.1")
				if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
					t.Fatal(err)
				}
				if err := c.report("pod-1", "10.0.0.1", api.Awake, 5); err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{}) // the process, which takes a while
				c.instances["10.0.0.1:8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != control.PathStop || !tt.answers {
						http.Error(w, "it does not sleep", http.StatusInternalServerError)
						return
					}
					<-ended
					api.WriteJSON(w, http.StatusOK, api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Gone})
				})
				c.linger = true
				wait, cancel := c.halt("pod-1")
				defer cancel()
				time.Sleep(5 * time.Second)
				if s := c.last("pod-1"); s.State == api.Gone || !c.toldGone("pod-1") || c.replicas() != 0 {
					t.Errorf("while it ends the core heard that it is %s, the activators that it is gone: %t, %d replicas; want that the core counts it and nobody else",
						s.State, c.toldGone("pod-1"), c.replicas())
				}
				if s, err := c.fleet.State(t.Context(), c.last("pod-1")); err != nil || s.State == api.Gone {
					t.Errorf("asked for, it is %s (%v), want it not gone yet", s.State, err)
				}
				close(ended)
				if tt.ends != nil {
					c.edit("pod-1", tt.ends)
				}
				if err := wait(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if s := c.last("pod-1"); s.State != api.Gone || !s.Taken {
					t.Errorf("then it is %s, taken: %t; want it gone", s.State, s.Taken)
				}
				n := c.heard("pod-1")
				if err := c.kube.Tracker().Delete(podResource, "default", "pod-1"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if c.heard("pod-1") != n || len(c.fleet.leaving) > 0 {
					t.Errorf("the core heard of it %d times more, %d are kept; want neither", c.heard("pod-1")-n, len(c.fleet.leaving))
				}
			})
		})
	}
}

// TestAProcessThatOutlivesItsStop: nothing says that it is gone before the stop has to end. It counts until its pod is gone.
func TestAProcessThatOutlivesItsStop(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		c.linger = true
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := c.fleet.Stop(ctx, c.last("pod-1"), api.Drain{}); !errors.Is(err, autoscaler.ErrEnding) {
			t.Errorf("got %v, want that it is ending", err)
		}
		if s := c.last("pod-1"); s.State == api.Gone {
			t.Error("it is gone before its process is")
		}
		if err := c.kube.Tracker().Delete(podResource, "default", "pod-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := c.last("pod-1"); s.State != api.Gone {
			t.Errorf("it is %s after its pod is gone", s.State)
		}
	})
}

// TestANewLeaderCountsWhatIsEnding: a pod that was on its way out before this process led holds its memory until it is gone.
func TestANewLeaderCountsWhatIsEnding(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *cluster){
		"its container ends": func(_ *testing.T, c *cluster) { c.edit("pod-1", beingDeleted) },
		"its pod is gone": func(t *testing.T, c *cluster) {
			if err := c.kube.Tracker().Delete(podResource, "default", "pod-1"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				c.declare(scaling{initialized: true})
				c.runs("pod-1", "10.0.0.1")
				if _, err := c.join("pod-1", "10.0.0.1", "GPU-1"); err != nil {
					t.Fatal(err)
				}
				c.linger = true
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.fleet.Stop(ctx, c.last("pod-1"), api.Drain{}); !errors.Is(err, autoscaler.ErrEnding) {
					t.Fatalf("got %v, want that it is ending", err)
				}
				c.stop()
				c.mu.Lock()
				c.seen, c.told = nil, nil
				c.mu.Unlock()
				c.start() // the next leader
				c.declare(scaling{initialized: true})
				s := c.last("pod-1")
				if s.State != api.Draining || !s.Taken || s.Node != "node1" || !slices.Equal(s.Devices, []api.DeviceID{"GPU-1"}) || s.Memory.PerDevice != api.GiB {
					t.Errorf("the core was told of %+v, want that it drains and holds GPU-1 of node1", s)
				}
				if !slices.ContainsFunc(c.devices, func(d inventory.Device) bool { return d.ID == "GPU-1" }) {
					t.Errorf("the core knows the devices %v, want GPU-1 among them", c.devices)
				}
				if len(c.told) > 0 {
					t.Errorf("activators were told %v, want nothing: it takes no requests", c.told)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.fleet.Stop(ctx, s, api.Drain{}); !errors.Is(err, autoscaler.ErrEnding) {
					t.Errorf("a stop of it: got %v, want that it is ending", err)
				}
				end(t, c)
				synctest.Wait()
				if s := c.last("pod-1"); s.State != api.Gone || !s.Taken {
					t.Errorf("then it is %s, taken: %t; want it gone", s.State, s.Taken)
				}
				if name == "its pod is gone" {
					return
				}
				n := c.heard("pod-1")
				c.edit("pod-1", func(p *corev1.Pod) { p.Labels["touched"] = "yes" })
				synctest.Wait()
				if c.heard("pod-1") != n {
					t.Error("the core was told again of a pod that it knows is gone")
				}
			})
		})
	}
}
