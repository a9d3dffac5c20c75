package knative

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestAnEvictedPod: the kubelet ends a pod that stays as an object; the Deployment makes another.
func TestAnEvictedPod(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Awake, 5); err != nil {
			t.Fatal(err)
		}
		c.edit("pod-1", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		})
		c.makePod()
		synctest.Wait()
		if s := c.last("pod-1"); s.State != api.Gone || !strings.Contains(s.Message, "low on resource") {
			t.Errorf("pod-1 is %s (%s), want it gone and why", s.State, s.Message)
		}
		if s := c.last("pod-2"); s.State != api.Starting {
			t.Errorf("pod-2 is %s, want it adopted", s.State)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Awake, 6); status(err) != 404 {
			t.Errorf("a late report: got %v, want 404", err)
		}
		if err := c.fleet.scaler.keepScale(t.Context(), tiny); err != nil || c.replicas() != 1 || c.called("scale") {
			t.Errorf("got %v and %d replicas, want the one, untouched", err, c.replicas())
		}
		c.edit("pod-1", func(p *corev1.Pod) { p.Labels["touched"] = "yes" }) // the object of a failed pod stays for hours
		synctest.Wait()
		if s := c.last("pod-1"); s.State != api.Gone {
			t.Errorf("pod-1 is %s again", s.State)
		}
	})
}

// TestThePodOfTheInitialScale: the pod that the Deployment makes of itself comes between the decision to start one and
// the start. It is that one. A start that is decided later gets its own.
func TestThePodOfTheInitialScale(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{})
		synctest.Wait()
		if s := c.last("pod-1"); s.State != api.Starting {
			t.Fatalf("pod-1 is %s, want it adopted", s.State)
		}
		id, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 3})()
		if id != "pod-1" || err != nil || c.replicas() != 1 {
			t.Errorf("the start got %q and %v, %d replicas; want the pod that is there", id, err, c.replicas())
		}
		c.runs("pod-1", "10.0.0.1")
		if a, err := c.join("pod-1", "10.0.0.1"); err != nil || a.Epoch != 3 {
			t.Errorf("it joins with %+v and %v, want the epoch of its start", a, err)
		}
		id, err = c.begin("tiny-00001-0002", api.Grant{Epoch: 4})()
		if id != "pod-2" || err != nil || c.replicas() != 2 {
			t.Errorf("the second start got %q and %v, %d replicas; want a pod of its own", id, err, c.replicas())
		}
	})
}

// TestTwoPodsJoinAtOnce: each gets its own, and neither the other's token.
func TestTwoPodsJoinAtOnce(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		one, two := c.begin("a", api.Grant{Epoch: 1}), c.begin("b", api.Grant{Epoch: 2})
		ids := map[api.InstanceID]bool{}
		for _, wait := range []func() (api.InstanceID, error){one, two} {
			id, err := wait()
			if err != nil {
				t.Fatal(err)
			}
			ids[id] = true
		}
		if len(ids) != 2 {
			t.Fatalf("two starts got the pods %v", ids)
		}
		type joined struct {
			answer control.RegisterAnswer
			err    error
		}
		addresses := map[api.InstanceID]string{"pod-1": "10.0.0.1", "pod-2": "10.0.0.2"}
		tokens := map[api.InstanceID]string{"pod-1": "the token of the first", "pod-2": "the token of the second"}
		var mu sync.Mutex // guards got
		got := map[api.InstanceID]joined{}
		var all sync.WaitGroup
		for id, ip := range addresses {
			c.addressed(string(id), ip)
		}
		for id, ip := range addresses {
			all.Go(func() {
				a, err := c.fleet.Join(t.Context(), control.RegisterRequest{Instance: id, Namespace: "default", Revision: tiny.Name(), Port: 8080}, netip.MustParseAddr(ip), tokens[id])
				mu.Lock()
				defer mu.Unlock()
				got[id] = joined{a, err}
			})
		}
		all.Wait()
		epochs := []uint64{got["pod-1"].answer.Epoch, got["pod-2"].answer.Epoch}
		slices.Sort(epochs)
		if !slices.Equal(epochs, []uint64{1, 2}) {
			t.Errorf("the epochs %v, want that of each start once", epochs)
		}
		for id, ip := range addresses {
			if j := got[id]; j.err != nil || j.answer.Endpoint != api.Endpoint("http://"+ip+":8080") {
				t.Errorf("%s: got %+v and %v", id, j.answer, j.err)
			}
			for of, token := range tokens {
				err := c.fleet.Report(api.InstanceStatus{Instance: id, Function: tiny, State: api.Awake, Seq: 9}, netip.MustParseAddr(ip), token)
				if (err == nil) != (of == id) {
					t.Errorf("a report of %s with the token of %s: %v", id, of, err)
				}
			}
		}
	})
}

// TestAStartWhileAnotherIsStopped: a request comes while the last pod is being
// stopped, and Kubernetes takes its time. The pod that was to go goes, and the
// start gets a new one.
func TestAStartWhileAnotherIsStopped(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.hold = true
		stopped := make(chan error, 1) // one answer
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() {
			stopped <- c.fleet.Stop(ctx, api.InstanceStatus{Instance: "pod-1", Function: tiny}, api.Drain{})
		}()
		synctest.Wait()
		wait := c.begin("tiny-00001-0001", api.Grant{Epoch: 3})
		c.follow(10)
		began := time.Now()
		id, err := wait()
		if id != "pod-2" || err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("the start got %q and %v after %s, want pod-2 soon", id, err, time.Since(began))
		}
		if err := <-stopped; err != nil {
			t.Errorf("the stop: %v", err)
		}
		if c.last("pod-1").State != api.Gone || c.replicas() != 1 {
			t.Errorf("pod-1 is %s, %d replicas; want it gone, and 1", c.last("pod-1").State, c.replicas())
		}
		time.Sleep(10 * time.Second)
	})
}

// TestAStopWhileAnotherStarts: the pod of a start is not made yet when another of
// the function is stopped. Both happen.
func TestAStopWhileAnotherStarts(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.hold = true
		time.Sleep(time.Minute) // pod-1 is nobody's who has only now been decided
		wait := c.begin("tiny-00001-0001", api.Grant{Epoch: 3})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		stopped := make(chan error, 1) // one answer
		go func() {
			stopped <- c.fleet.Stop(ctx, api.InstanceStatus{Instance: "pod-1", Function: tiny}, api.Drain{})
		}()
		synctest.Wait()
		c.follow(10)
		if id, err := wait(); id != "pod-2" || err != nil {
			t.Errorf("the start got %q and %v, want pod-2", id, err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("the stop: %v", err)
		}
		synctest.Wait()
		if c.last("pod-1").State != api.Gone || c.last("pod-2").State == api.Gone || c.replicas() != 1 {
			t.Errorf("pod-1 is %s, pod-2 %s, %d replicas; want the first gone, and 1", c.last("pod-1").State, c.last("pod-2").State, c.replicas())
		}
		time.Sleep(10 * time.Second)
	})
}

// follow is the Deployment's controller where it is slow: it looks at the scale twice a second, n times.
func (c *cluster) follow(n int) {
	go func() {
		for range n {
			time.Sleep(500 * time.Millisecond)
			want := c.replicas()
			c.kube.Lock()
			c.mu.Lock()
			c.match(want)
			c.mu.Unlock()
			c.kube.Unlock()
		}
	}()
}
