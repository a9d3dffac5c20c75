package knative

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rouse-dev/rouse/config"
)

// TestFences: the pods of a revision that are made here are behind a NetworkPolicy, which ends with
// the revision, and is as it should be again after somebody has opened it.
func TestFences(t *testing.T) {
	for _, dual := range []bool{false, true} {
		var annotations map[string]string
		want := []string{"tiny-00001-rouse"}
		if dual {
			annotations = map[string]string{config.AnnotationDualPods: "true"}
			want = append(want, "tiny-00001-rouse-provider")
		}
		inCluster(t, 1, annotations, func(t *testing.T, c *cluster) {
			policies := func() []networkingv1.NetworkPolicy {
				list, err := c.kube.NetworkingV1().NetworkPolicies("").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(list.Items, func(a, b networkingv1.NetworkPolicy) int { return len(a.Name) - len(b.Name) })
				return list.Items
			}
			c.pass()
			first := policies()
			var names []string
			for _, p := range first {
				names = append(names, p.Name)
				if owner := metav1.GetControllerOf(&p); owner == nil || owner.UID != "rev-uid" || p.Namespace != "default" {
					t.Errorf("%s/%s is %+v's", p.Namespace, p.Name, owner)
				}
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Fatalf("dual %t: (-want +got)\n%s", dual, diff)
			}
			selects := func(p networkingv1.NetworkPolicy, pod labels.Set) bool {
				s, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
				return err == nil && s.Matches(pod)
			}
			c.fleet.mu.Lock()
			pod := c.fleet.pods["pod-1"].object
			c.fleet.mu.Unlock()
			if !selects(first[0], pod.Labels) {
				t.Errorf("%v does not select the pod with %v", first[0].Spec.PodSelector, pod.Labels)
			}
			if dual {
				provider, err := Derive(pod, ProviderPod{Name: "p", Revision: tiny.Name()})
				if err != nil || !selects(first[1], provider.Labels) {
					t.Errorf("%v does not select the provider with %v (%v)", first[1].Spec.PodSelector, provider.Labels, err)
				}
			}
			opened := first[0].DeepCopy()
			opened.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
			if _, err := c.kube.NetworkingV1().NetworkPolicies("default").Update(t.Context(), opened, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(fenceAgain)
			c.pass()
			if diff := cmp.Diff(first[0].Spec, policies()[0].Spec); diff != "" {
				t.Errorf("after it was opened: (-want +got)\n%s", diff)
			}
		})
	}
}
