package knative

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
)

// toldGone says whether the activators know that nothing may be sent to an instance any more.
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
				if c.heard("pod-1") != n || len(c.fleet.expiring) > 0 {
					t.Errorf("the core heard of it %d times more, %d are kept; want neither", c.heard("pod-1")-n, len(c.fleet.expiring))
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
		if err := c.fleet.Stop(ctx, c.last("pod-1"), 0); !errors.Is(err, autoscaler.ErrEnding) {
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
