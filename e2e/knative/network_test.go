package knative

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// network evaluates a cluster's NetworkPolicies for its present pods. Whether anything enforces them depends on the
// cluster's network: the bridge of the tests does not.
type network struct {
	t          *testing.T
	policies   []networkingv1.NetworkPolicy
	namespaces map[string]labels.Set
	pods       []corev1.Pod
}

func networkOf(t *testing.T, c *cluster.Cluster) *network {
	t.Helper()
	n := &network{t: t, namespaces: map[string]labels.Set{}}
	var policies networkingv1.NetworkPolicyList
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	for path, into := range map[string]any{
		"/apis/networking.k8s.io/v1/networkpolicies": &policies, "/api/v1/namespaces": &namespaces, "/api/v1/pods": &pods,
	} {
		if err := get(t.Context(), c, path, into); err != nil {
			t.Fatalf("get %s: %v", path, err)
		}
	}
	n.policies, n.pods = policies.Items, pods.Items
	for _, ns := range namespaces.Items {
		n.namespaces[ns.Name] = ns.Labels
	}
	return n
}

// pod is one that a selector finds in a namespace.
func (n *network) pod(namespace, selector string) corev1.Pod {
	n.t.Helper()
	at := n.index(namespace, selector)
	if at < 0 {
		n.t.Fatalf("there is no pod %s in %s", selector, namespace)
	}
	return n.pods[at]
}

func (n *network) has(namespace, selector string) bool { return n.index(namespace, selector) >= 0 }

func (n *network) index(namespace, selector string) int {
	s, err := labels.Parse(selector)
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.IndexFunc(n.pods, func(p corev1.Pod) bool {
		return p.Namespace == namespace && p.DeletionTimestamp == nil && s.Matches(labels.Set(p.Labels))
	})
}

// stranger is a pod of a namespace with labels, which need not be there.
func (n *network) stranger(namespace string, of labels.Set) corev1.Pod {
	n.namespaces[namespace] = labels.Merge(of, labels.Set{corev1.LabelMetadataName: namespace})
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stranger", Labels: map[string]string{"app": "rouse-activator"}}}
}

func (n *network) matches(s *metav1.LabelSelector, of labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		n.t.Fatal(err)
	}
	return selector.Matches(of)
}

// reaches says whether from may open connections to a port of to, as the NetworkPolicy API defines it.
func (n *network) reaches(from, to corev1.Pod, port int32) bool {
	selected := false
	for _, p := range n.policies {
		if p.Namespace != to.Namespace || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || !n.matches(&p.Spec.PodSelector, to.Labels) {
			continue
		}
		selected = true
		for _, rule := range p.Spec.Ingress {
			if n.port(rule.Ports, to, port) && n.peer(rule.From, p.Namespace, from) {
				return true
			}
		}
	}
	return !selected
}

func (n *network) port(ports []networkingv1.NetworkPolicyPort, of corev1.Pod, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Port == nil || p.Port.Type == intstr.Int {
			return p.Port == nil || p.Port.IntVal == port
		}
		return slices.ContainsFunc(of.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(q corev1.ContainerPort) bool { return q.Name == p.Port.StrVal && q.ContainerPort == port })
		})
	})
}

func (n *network) peer(peers []networkingv1.NetworkPolicyPeer, own string, from corev1.Pod) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil:
			n.t.Errorf("a NetworkPolicy with an ipBlock")
			return false
		case p.NamespaceSelector == nil && from.Namespace != own, p.NamespaceSelector != nil && !n.matches(p.NamespaceSelector, n.namespaces[from.Namespace]):
			return false
		}
		return p.PodSelector == nil || n.matches(p.PodSelector, from.Labels)
	})
}

// fencedOff checks which pods reach a pod of a function.
func (n *network) fencedOff(to corev1.Pod) {
	n.t.Helper()
	friends := []corev1.Pod{n.pod("knative-serving", "app=rouse-activator"), n.pod("knative-serving", "app=rouse-autoscaler"), n.stranger("of-the-operator", labels.Set{"rouse.dev/reach-functions": "true"})}
	for _, from := range friends {
		for _, port := range []int32{8080, 8012} {
			if !n.reaches(from, to, port) {
				n.t.Errorf("%s/%s does not reach %s:%d", from.Namespace, from.Name, to.Name, port)
			}
		}
	}
	monitor := n.stranger("prometheus", labels.Set{"rouse.dev/monitoring": "true"})
	for _, from := range []corev1.Pod{n.stranger("anybody", nil), n.stranger("default", nil), n.stranger("said-no", labels.Set{"rouse.dev/reach-functions": "false"}), n.pod("knative-serving", "app=controller"), monitor} {
		for _, port := range []int32{8080, 8012, 9091} {
			if got := n.reaches(from, to, port); got && (from.Namespace != monitor.Namespace || port != 9091) {
				n.t.Errorf("%s/%s reaches %s:%d", from.Namespace, from.Name, to.Name, port)
			}
		}
	}
}

// TestWhoReachesWhom checks that only activators, the autoscaler and the operator's exceptions reach the pods of
// functions, that monitoring reads metrics, and that the pods of stock functions have no policy.
func TestWhoReachesWhom(t *testing.T) {
	parallel(t)
	c := rouse(t)
	ours := create(t, "fenced", functionImage, lasting)
	ours.ask("red blue")
	stock := create(t, "fenced-not", helloImage, []string{"autoscaling.knative.dev/min-scale=1"}, "--request", "cpu=10m")
	n := networkOf(t, c)
	function := n.pod("default", "serving.knative.dev/service="+ours.name)
	n.fencedOff(function)
	if to := n.pod("default", "serving.knative.dev/service="+stock.name); !n.reaches(n.stranger("anybody", nil), to, 8012) {
		t.Error("a stock function's pod is fenced off")
	}
	if !n.reaches(n.stranger("prometheus", labels.Set{"rouse.dev/monitoring": "true"}), function, 9091) {
		t.Error("monitoring does not reach the metrics of a function's queue-proxy")
	}
	anybody, monitor := n.stranger("anybody", nil), n.stranger("prometheus", labels.Set{"rouse.dev/monitoring": "true"})
	activator, autoscaler := n.pod("knative-serving", "app=rouse-activator"), n.pod("knative-serving", "app=rouse-autoscaler")
	for _, way := range []struct {
		from, to corev1.Pod
		port     int32
		want     bool
	}{
		{anybody, activator, 8012, true}, {anybody, activator, 8112, true}, {anybody, activator, 8014, false}, {autoscaler, activator, 8014, true},
		{anybody, activator, 9091, false}, {monitor, activator, 9091, true}, {anybody, activator, 8008, false}, {monitor, activator, 8008, false},
		{function, autoscaler, 8080, true}, {anybody, autoscaler, 9091, false}, {monitor, autoscaler, 9091, true},
	} {
		if got := n.reaches(way.from, way.to, way.port); got != way.want {
			t.Errorf("%s/%s reaches %s:%d: %t, want %t", way.from.Namespace, way.from.Name, way.to.Name, way.port, got, way.want)
		}
	}
	if out, err := c.Kubectl(t.Context(), "get", "networkpolicies", "-o", "name"); err != nil || !strings.Contains(out, "fenced-00001-rouse") {
		t.Errorf("%v: %s", err, out)
	}
	refusedTo(t, c, "kube-* or knative-*", "-n", "knative-serving", "create", "--dry-run=server", "-f", object(t, networkPolicy("rouse-activator")))
	refusedTo(t, c, "of one Knative revision", "create", "--dry-run=server", "-f", object(t, networkPolicy("all")))
}

// networkPolicy returns a policy that allows all.
func networkPolicy(name string) map[string]any {
	return map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"podSelector": map[string]any{}, "ingress": []any{map[string]any{}}}}
}
