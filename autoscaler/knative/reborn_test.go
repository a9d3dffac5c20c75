package knative

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// TestAProcessThatBeginsAnew is told what its predecessor had seen, and begins asleep: what it
// needs awake may be another's.
func TestAProcessThatBeginsAnew(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		if _, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7})(); err != nil {
			t.Fatal(err)
		}
		c.addressed("pod-1", "10.0.0.1")
		join := func(what string, asleep bool, epoch uint64) {
			t.Helper()
			a, err := c.join("pod-1", "10.0.0.1")
			if err != nil || a.Asleep != asleep || a.Epoch != epoch {
				t.Errorf("%s: asleep %t, epoch %d, %v; want %t, %d", what, a.Asleep, a.Epoch, err, asleep, epoch)
			}
		}
		report := func(s api.State, seq uint64) {
			t.Helper()
			if err := c.report("pod-1", "10.0.0.1", s, seq); err != nil {
				t.Fatal(err)
			}
		}
		join("its first process", false, 7)
		report(api.Awake, 20)
		report(api.Gone, 21)
		join("one that ended awake", true, 7)
		report(api.Asleep, 30)
		if _, err := c.fleet.Fence(t.Context(), api.InstanceStatus{Instance: "pod-1"}, 9); err == nil {
			t.Fatal("an order reached a process that does not listen")
		}
		report(api.Gone, 31)
		join("one that ended asleep", true, 9)
	})
}

// TestAPodFromBefore: nobody knows how it was, and what leaders of before ordered is worthless.
func TestAPodFromBefore(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		if _, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7})(); err != nil {
			t.Fatal(err)
		}
		c.fleet.mu.Lock()
		o := c.fleet.pods["pod-1"].object.DeepCopy()
		c.fleet.mu.Unlock()
		o.Name, o.UID, o.Status.Phase = "pod-2", "of-before", corev1.PodRunning
		o.Status.PodIP = "10.0.0.2"
		c.fleet.cfg.Term = 5
		c.fleet.tracker.onPod(o)
		a, err := c.join("pod-2", "10.0.0.2")
		if err != nil || !a.Asleep || a.Epoch != decide.FirstEpoch(5) {
			t.Errorf("asleep %t, epoch %d, %v; want asleep with the term's first epoch, %d", a.Asleep, a.Epoch, err, decide.FirstEpoch(5))
		}
	})
}

// TestAPodAstray shares a GPU on which no room was made for it: it is not to start before there is.
func TestAPodAstray(t *testing.T) {
	for _, test := range []struct {
		what    string
		shared  bool
		granted []api.DeviceID
		given   api.DeviceID
		asleep  bool
	}{
		{"the GPU of its grant", true, []api.DeviceID{"GPU-1"}, "GPU-1::2", false},
		{"the GPU of its grant, which had no name", true, []api.DeviceID{"node1/gpu-1"}, "GPU-1", false},
		{"another one", true, []api.DeviceID{"GPU-0"}, "GPU-1", true},
		{"one, and it was promised none", true, nil, "GPU-1", true},
		{"another one, which it has alone", false, []api.DeviceID{"GPU-0"}, "GPU-1", false},
	} {
		inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
			c.declare(scaling{initialized: true})
			c.fleet.mu.Lock()
			n := c.fleet.nodes.byName["node1"]
			n.shared, n.ids = test.shared, []api.DeviceID{"GPU-0", "GPU-1"}
			if len(test.granted) > 0 && test.granted[0] == "node1/gpu-1" {
				n.ids[1] = ""
			}
			c.fleet.mu.Unlock()
			if _, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7, Devices: test.granted})(); err != nil {
				t.Fatal(err)
			}
			c.addressed("pod-1", "10.0.0.1")
			a, err := c.join("pod-1", "10.0.0.1", test.given)
			if err != nil || a.Asleep != test.asleep {
				t.Errorf("it was given %s: asleep %t, %v; want %t", test.what, a.Asleep, err, test.asleep)
			}
		})
	}
}
