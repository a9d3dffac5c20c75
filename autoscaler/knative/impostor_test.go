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

// TestAnImpostorIsPutOut joins as a pod that has no address yet, from an address that
// it then does not get: its own function takes its place as soon as it is known.
func TestAnImpostorIsPutOut(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.edit("pod-1", func(p *corev1.Pod) { p.Spec.NodeName = "node1" })
		synctest.Wait()
		other := netip.MustParseAddr("10.0.0.66")
		const token = "a token of somebody else"
		join := func() error {
			_, err := c.fleet.Join(t.Context(), control.JoinRequest{Instance: "pod-1", Namespace: "default", Revision: tiny.Name(), Port: 8080}, other, token)
			return err
		}
		if err := join(); err != nil {
			t.Fatalf("a join before the pod has an address: %v", err)
		}
		if err := c.fleet.Report(api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Awake, Seq: math.MaxUint64}, other, token); err != nil {
			t.Fatal(err)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); status(err) != http.StatusForbidden {
			t.Errorf("its own join before Kubernetes vouches for it: got %v, want 403", err)
		}
		time.Sleep(time.Second)
		c.runs("pod-1", "10.0.0.1")
		if s := c.last("pod-1"); s.State != api.Unhealthy || s.GaveUp || !strings.Contains(s.Message, "10.0.0.66") {
			t.Errorf("got %s (%v): %q, want that the other is no longer believed", s.State, s.GaveUp, s.Message)
		}
		if err := c.fleet.Report(api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Awake, Seq: math.MaxUint64}, other, token); status(err) != http.StatusNotFound {
			t.Errorf("a report of the one who was put out: got %v, want 404", err)
		}
		if err := join(); status(err) != http.StatusForbidden {
			t.Errorf("its next join: got %v, want 403", err)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Errorf("the pod's own join: %v", err)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, uint64(time.Now().UnixMicro()))
		if s := c.last("pod-1"); s.State != api.Awake || s.Endpoint != "http://10.0.0.1:8080" {
			t.Errorf("got %s at %s, want it awake at its own address", s.State, s.Endpoint)
		}
	})
}

// TestAPodWhoseAddressIsHidden joins from another address than its own, as behind a
// mesh's proxy: what is reported says so.
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
