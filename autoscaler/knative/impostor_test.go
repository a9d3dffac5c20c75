package knative

import (
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

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

// TestAJoinWaitsForTheAddress answers a join when Kubernetes publishes the address, with no further try.
func TestAJoinWaitsForTheAddress(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		began, joined := time.Now(), make(chan error, 1)
		go func() {
			_, err := c.join("pod-1", "10.0.0.1")
			joined <- err
		}()
		time.Sleep(addressWait / 2)
		c.runs("pod-1", "10.0.0.1")
		if err := <-joined; err != nil || time.Since(began) != addressWait/2 {
			t.Errorf("after %v: %v, want the answer at once", time.Since(began), err)
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

const aProof = "header.claims.signature"

// proves answers reviews of aProof as Kubernetes does for the proof of pod-1, with the changes, and counts them.
func (c *cluster) proves(change func(*authenticationv1.TokenReviewStatus), err error) (asked *int) {
	asked = new(int)
	c.kube.PrependReactor("create", "tokenreviews", func(action kubetesting.Action) (bool, runtime.Object, error) {
		*asked++
		review := action.(kubetesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if review.Spec.Token != aProof {
			c.t.Errorf("a review of %q", review.Spec.Token)
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:default:default", Extra: map[string]authenticationv1.ExtraValue{
				"authentication.kubernetes.io/pod-name": {"pod-1"}, "authentication.kubernetes.io/pod-uid": {"pod-1"}}}}
		change(&review.Status)
		return true, review, err
	})
	return asked
}

// joinProven lets pod-1's function join from an address with a proof.
func (c *cluster) joinProven(ip string) error {
	_, err := c.fleet.Join(c.t.Context(), control.RegisterRequest{Instance: "pod-1", Namespace: "default", Revision: tiny.Name(), Port: 8080, Proof: aProof},
		netip.MustParseAddr(ip), ownTok)
	return err
}

// TestAProofIsJoinedWithoutAnAddress joins before Kubernetes has published the pod's address. What it publishes later
// counts more than the proof.
func TestAProofIsJoinedWithoutAnAddress(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		asked := c.proves(func(*authenticationv1.TokenReviewStatus) {}, nil)
		if err := c.joinProven("10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, 1)
		if s := c.last("pod-1"); s.State != api.Awake || s.Endpoint != "http://10.0.0.1:8080" {
			t.Errorf("got %s at %s, want it awake at its address", s.State, s.Endpoint)
		}
		c.runs("pod-1", "10.0.0.1")
		if s := c.last("pod-1"); s.State != api.Awake {
			t.Errorf("got %s, want it still awake", s.State)
		}
		c.runs("pod-1", "10.0.0.2")
		if s := c.last("pod-1"); s.State != api.Unhealthy {
			t.Errorf("got %s with another address, want that the first is no longer believed", s.State)
		}
		if err := c.joinProven("10.0.0.1"); status(err) != http.StatusForbidden {
			t.Errorf("a join with the proof from another address: got %v, want 403", err)
		}
		if *asked != 1 {
			t.Errorf("Kubernetes has checked %d proofs, want only the one that was needed", *asked)
		}
	})
}

// TestProofsThatProveNothing are refused with the reason, and don't keep the pod out once it has an address.
func TestProofsThatProveNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*authenticationv1.TokenReviewStatus)
		err    error
		status int
		says   string
	}{
		"it is no token": {func(s *authenticationv1.TokenReviewStatus) {
			*s = authenticationv1.TokenReviewStatus{Error: "the token has expired"}
		}, nil, http.StatusForbidden, "the token has expired"},
		"it is another pod's": {func(s *authenticationv1.TokenReviewStatus) {
			s.User.Extra["authentication.kubernetes.io/pod-name"] = authenticationv1.ExtraValue{"pod-2"}
		}, nil, http.StatusForbidden, "another pod's"},
		"it is an earlier pod's": {func(s *authenticationv1.TokenReviewStatus) {
			s.User.Extra["authentication.kubernetes.io/pod-uid"] = authenticationv1.ExtraValue{"before"}
		}, nil, http.StatusForbidden, "another pod's"},
		"it is bound to no pod": {func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = nil }, nil, http.StatusForbidden, "another pod's"},
		"it is of another namespace": {func(s *authenticationv1.TokenReviewStatus) {
			s.User.Username = "system:serviceaccount:default-2:default"
		}, nil, http.StatusForbidden, "default-2"},
		"it is a user's": {func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "jane" }, nil, http.StatusForbidden, "jane"},
		"it is for the API server": {func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"https://kubernetes.default.svc"} },
			nil, http.StatusForbidden, "not for " + control.ProofAudience},
		"Kubernetes does not check it": {func(*authenticationv1.TokenReviewStatus) {}, errors.New("tokenreviews is forbidden"), http.StatusNotFound, "tokenreviews is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				c.proves(tt.change, tt.err)
				err := c.joinProven("10.0.0.1")
				if status(err) != tt.status || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), aProof) {
					t.Errorf("got %v, want %d with %q", err, tt.status, tt.says)
				}
				c.runs("pod-1", "10.0.0.1")
				if err := c.joinProven("10.0.0.1"); err != nil {
					t.Errorf("with the address: %v", err)
				}
			})
		})
	}
}

// TestWrongProofDelaysNobody: a stranger's wrong proof leaves the pod's own to be checked at once.
func TestWrongProofDelaysNobody(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		wrong := true
		asked := c.proves(func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = !wrong }, nil)
		if err := c.joinProven("10.9.9.9"); status(err) != http.StatusForbidden {
			t.Errorf("a wrong proof: got %v, want 403", err)
		}
		if wrong = false; c.joinProven("10.0.0.1") != nil || *asked != 2 {
			t.Errorf("the pod has not joined in the same second; Kubernetes has checked %d proofs", *asked)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.fleet.reviewed.Range(func(address, _ any) bool {
			t.Errorf("after a second %s is still remembered", address)
			return true
		})
	})
}

// TestManyProofs: joins of one address make Kubernetes check one proof a second at most, and none before the pod has
// a node.
func TestManyProofs(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		asked := c.proves(func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false }, nil)
		c.edit("pod-1", func(p *corev1.Pod) { p.Spec.NodeName = "" })
		synctest.Wait()
		if err := c.joinProven("10.0.0.1"); status(err) != http.StatusNotFound || *asked != 0 {
			t.Errorf("without a node: got %v, and %d checks", err, *asked)
		}
		c.edit("pod-1", func(p *corev1.Pod) { p.Spec.NodeName = "node1" })
		synctest.Wait()
		for range 100 {
			go func() { _ = c.joinProven("10.0.0.1") }()
		}
		time.Sleep(addressWait)
		synctest.Wait()
		if *asked != 1 {
			t.Errorf("Kubernetes has checked %d proofs at once", *asked)
		}
		time.Sleep(time.Second)
		if err := c.joinProven("10.0.0.1"); status(err) != http.StatusForbidden || *asked != 2 {
			t.Errorf("after a second: got %v, and %d checks", err, *asked)
		}
	})
}
