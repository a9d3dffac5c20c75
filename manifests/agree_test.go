package manifests

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rouse-dev/rouse/api/control"
)

// module returns the folder of a module that go.mod names.
func module(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatalf("find the module %s: %v", path, err)
	}
	return strings.TrimSpace(string(out))
}

// knativeActivator returns the ports that Knative's Service of activators sends to.
func knativeActivator(t *testing.T) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(module(t, "knative.dev/serving"), "config/core/deployments/activator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]int{}
	for _, s := range of[*corev1.Service](decode(t, raw)) {
		for _, p := range s.Spec.Ports {
			ports[p.Name] = p.TargetPort.IntValue()
		}
	}
	return ports
}

// deployment finds one by name.
func deployment(t *testing.T, all []object, name string) *appsv1.Deployment {
	t.Helper()
	for _, d := range of[*appsv1.Deployment](all) {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no Deployment %s", name)
	return nil
}

func ports(d *appsv1.Deployment) map[string]int {
	all := map[string]int{}
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		all[p.Name] = int(p.ContainerPort)
	}
	return all
}

// TestPorts compares with the constants that the programs listen by, and with the
// Service of Knative's that requests come through.
func TestPorts(t *testing.T) {
	all := rendered(t, "default")
	stock := knativeActivator(t)
	want := map[string]int{
		"http1": stock["http"], "h2c": stock["http2"], "https": stock["https"], "profiling": stock["http-profiling"],
		"control": control.ActivatorPort, "metrics": control.MetricsPort,
	}
	if diff := cmp.Diff(want, ports(deployment(t, all, control.ActivatorName))); diff != "" {
		t.Errorf("the activator's ports:\n%s", diff)
	}
	want = map[string]int{"http": control.AutoscalerPort, "metrics": control.MetricsPort}
	if diff := cmp.Diff(want, ports(deployment(t, all, control.AutoscalerName))); diff != "" {
		t.Errorf("the autoscaler's ports:\n%s", diff)
	}
	services := map[string]*corev1.Service{}
	for _, s := range of[*corev1.Service](all) {
		services[s.Name] = s
	}
	if diff := cmp.Diff([]string{control.FrontDoorName, control.ActivatorName, control.AutoscalerName}, slices.Sorted(maps.Keys(services))); diff != "" {
		t.Fatal(diff)
	}
	if host := control.AutoscalerName + "." + control.SystemNamespace + ".svc"; control.DefaultControlURL != "http://"+host {
		t.Errorf("functions join at %s, the Service is http://%s", control.DefaultControlURL, host)
	}
	named := map[string]int{} // as ingresses look for them, by way of the Endpoints of revisions
	for _, p := range services[control.ActivatorName].Spec.Ports {
		named[p.Name] = ports(deployment(t, all, control.ActivatorName))[p.TargetPort.StrVal]
	}
	if diff := cmp.Diff(map[string]int{"http": stock["http"], "http2": stock["http2"], "https": stock["https"]}, named); diff != "" {
		t.Errorf("the ports of the Service %s:\n%s", control.ActivatorName, diff)
	}
	for name, s := range services {
		if p := s.Spec.Ports[0]; p.Port != 80 || p.Name != "http" {
			t.Errorf("Service %s: the first port is %s %d, want http 80", name, p.Name, p.Port)
		}
	}
	if got := services[control.AutoscalerName].Spec.Selector[control.LabelLeader]; got != "true" {
		t.Errorf("the autoscaler's Service selects %s=%q, want the one that decides", control.LabelLeader, got)
	}
}

// pods returns the Deployments whose pods a selector finds.
func pods(t *testing.T, all []object, s *metav1.LabelSelector) []*appsv1.Deployment {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	var found []*appsv1.Deployment
	for _, d := range of[*appsv1.Deployment](all) {
		l := maps.Clone(d.Spec.Template.Labels)
		l[control.LabelLeader] = "true" // the pod that decides gives it to itself
		if selector.Matches(labels.Set(l)) {
			found = append(found, d)
		}
	}
	return found
}

// TestSelectors follows every selector and every port name to the pods they mean.
func TestSelectors(t *testing.T) {
	all := rendered(t, "default", Components()...)
	one := func(what string, s *metav1.LabelSelector) *appsv1.Deployment {
		found := pods(t, all, s)
		if len(found) != 1 {
			t.Fatalf("%s selects the pods of %d Deployments, want 1", what, len(found))
		}
		return found[0]
	}
	hasPort := func(what string, d *appsv1.Deployment, p intstr.IntOrString) {
		if _, found := ports(d)[p.StrVal]; !found {
			t.Errorf("%s: port %q is none of %s", what, p.String(), d.Name)
		}
	}
	for _, d := range of[*appsv1.Deployment](all) {
		if one("Deployment "+d.Name, d.Spec.Selector) != d {
			t.Errorf("Deployment %s selects the pods of another", d.Name)
		}
		for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
			one("the spread of "+d.Name, c.LabelSelector)
		}
		for _, p := range []*corev1.Probe{d.Spec.Template.Spec.Containers[0].ReadinessProbe, d.Spec.Template.Spec.Containers[0].LivenessProbe} {
			hasPort("a probe", d, p.HTTPGet.Port)
		}
	}
	for _, s := range of[*corev1.Service](all) {
		d := one("Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, p := range s.Spec.Ports {
			hasPort("Service "+s.Name, d, p.TargetPort)
		}
	}
	for _, b := range of[*policyv1.PodDisruptionBudget](all) {
		one("PodDisruptionBudget "+b.Name, b.Spec.Selector)
	}
	for _, h := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
		d := deployment(t, all, h.Spec.ScaleTargetRef.Name)
		if d.Spec.Replicas != nil {
			t.Errorf("Deployment %s has replicas, which its HorizontalPodAutoscaler changes: each apply would put them back", d.Name)
		}
	}
	for _, n := range of[*networkingv1.NetworkPolicy](all) {
		d := one("NetworkPolicy "+n.Name, &n.Spec.PodSelector)
		for _, rule := range n.Spec.Ingress {
			for _, p := range rule.Ports {
				hasPort("NetworkPolicy "+n.Name, d, *p.Port)
			}
			for _, from := range rule.From {
				if from.PodSelector != nil && len(pods(t, all, from.PodSelector)) == 0 {
					t.Errorf("NetworkPolicy %s lets in pods that there are none of", n.Name)
				}
			}
		}
	}
	for _, m := range of[*podMonitor](all) {
		if m.Name != "rouse" { // of functions' pods: TestPodMonitorsOfInstances
			continue
		}
		for _, d := range pods(t, all, &m.Spec.Selector) {
			hasPort("PodMonitor", d, intstr.FromString(m.Spec.PodMetricsEndpoints[0].Port))
		}
		if n := len(pods(t, all, &m.Spec.Selector)); n < 2 { // TestPodMonitor looks for each
			t.Errorf("PodMonitor selects %d Deployments, want both and more", n)
		}
	}
}
