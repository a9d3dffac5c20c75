package knative

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
)

// TestAProcessThatBeginsAnew is told what its predecessor had seen, and begins asleep: what it
// needs awake may be another's.
func TestAProcessThatBeginsAnew(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		if _, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7})(); err != nil {
			t.Fatal(err)
		}
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
		c.fleet.ordered("pod-1", 9)
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
		c.fleet.cfg.Term = 5
		c.fleet.onPod(o)
		a, err := c.join("pod-2", "10.0.0.2")
		if err != nil || !a.Asleep || a.Epoch != api.FirstEpoch(5) {
			t.Errorf("asleep %t, epoch %d, %v; want asleep with the term's first epoch, %d", a.Asleep, a.Epoch, err, api.FirstEpoch(5))
		}
	})
}
