package knative

import (
	"math"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestAPodWithoutAnAddressIsJoinedByNobody joins as a pod that has no address yet, as anyone can that knows or guesses
// its name. The join is refused and does not keep the real pod out.
func TestAPodWithoutAnAddressIsJoinedByNobody(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		other := netip.MustParseAddr("10.0.0.66")
		const token = "a token of somebody else"
		join := func() error {
			_, err := c.fleet.Join(t.Context(), control.RegisterRequest{Instance: "pod-1", Namespace: "default", Revision: tiny.Name(), Port: 8080}, other, token)
			return err
		}
		for _, node := range []string{"", "node1"} {
			c.edit("pod-1", func(p *corev1.Pod) { p.Spec.NodeName = node })
			synctest.Wait()
			if err := join(); status(err) != http.StatusNotFound {
				t.Fatalf("a join before the pod has an address, on node %q: got %v, want 404", node, err)
			}
			if _, err := c.join("pod-1", "10.0.0.1"); status(err) != http.StatusNotFound {
				t.Fatalf("its own: got %v, want 404", err)
			}
		}
		if err := c.fleet.Report(api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Awake, Seq: math.MaxUint64}, other, token); status(err) != http.StatusNotFound {
			t.Errorf("a report: got %v, want 404", err)
		}
		c.runs("pod-1", "10.0.0.1")
		if err := join(); status(err) != http.StatusForbidden {
			t.Errorf("its next join: got %v, want 403", err)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Errorf("the pod's own join: %v", err)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, 1)
		if s := c.last("pod-1"); s.State != api.Awake || s.Endpoint != "http://10.0.0.1:8080" {
			t.Errorf("got %s at %s, want it awake at its own address", s.State, s.Endpoint)
		}
	})
}

// TestAnAddressThatChanges checks a pod whose sandbox is made again and has another address. Requests from the old
// address are refused.
func TestAnAddressThatChanges(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		c.runs("pod-1", "10.0.0.2")
		if s := c.last("pod-1"); s.State != api.Unhealthy || s.GaveUp || !strings.Contains(s.Message, "10.0.0.2") {
			t.Errorf("got %s (%v): %q, want that the old address is no longer believed", s.State, s.GaveUp, s.Message)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Awake, math.MaxUint64); status(err) != http.StatusNotFound {
			t.Errorf("a report from the old address: got %v, want 404", err)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); status(err) != http.StatusForbidden {
			t.Errorf("a join from the old address: got %v, want 403", err)
		}
		if _, err := c.join("pod-1", "10.0.0.2"); err != nil {
			t.Errorf("a join from the new address: %v", err)
		}
	})
}

// TestAPodWhoseAddressIsHidden joins from another address than its own, as behind a mesh's proxy: the report says so.
func TestAPodWhoseAddressIsHidden(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.instances["10.0.0.1:8080"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.9.9.9"); status(err) != http.StatusForbidden {
			t.Fatalf("got %v, want 403", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := c.last("pod-1"); s.State != api.Unhealthy || !strings.Contains(s.Message, "10.9.9.9") || !strings.Contains(s.Message, "mesh") {
			t.Errorf("got %s: %q, want the address and what to do", s.State, s.Message)
		}
	})
}
