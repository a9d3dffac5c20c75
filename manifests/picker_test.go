package manifests

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestPool compares the example of an InferencePool with the objects of the component picker.
func TestPool(t *testing.T) {
	var pool struct {
		Kind string
		Spec struct {
			Selector          struct{ MatchLabels map[string]string }
			TargetPorts       []struct{ Number int32 }
			EndpointPickerRef struct {
				Name        string
				Port        struct{ Number int32 }
				FailureMode string
			}
		}
	}
	doc, _, _ := bytes.Cut(read(t, "examples/pools/inference-pool.yaml"), []byte("\n---\n"))
	if err := yaml.Unmarshal(doc, &pool); err != nil || pool.Kind != "InferencePool" {
		t.Fatalf("got %v, %v", pool, err)
	}
	all := rendered(t, "default", "picker", "front")
	for _, d := range of[*appsv1.Deployment](all) {
		if d.Name != "rouse-activator" {
			continue
		}
		for name, value := range pool.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[name] != value {
				t.Errorf("the pool's selector has %s=%s, the pods %v", name, value, d.Spec.Template.Labels)
			}
		}
		c := d.Spec.Template.Spec.Containers[0]
		ports := map[string]int32{}
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		if len(pool.Spec.TargetPorts) != 1 || pool.Spec.TargetPorts[0].Number != ports["http1"] {
			t.Errorf("the pool's ports are %v, the pods' %v", pool.Spec.TargetPorts, ports)
		}
		args := strings.Join(c.Args, " ")
		for _, want := range []string{"--picker-address=0.0.0.0:9002", "--picker-front=$(POD_IP):8012", "--clusters="} {
			if !strings.Contains(args, want) {
				t.Errorf("the arguments are %s: want %s too", args, want)
			}
		}
	}
	ref := pool.Spec.EndpointPickerRef
	if !slices.ContainsFunc(of[*corev1.Service](all), func(s *corev1.Service) bool {
		return s.Name == ref.Name && s.Spec.Ports[0].Port == ref.Port.Number
	}) {
		t.Errorf("there is no Service %s with the port %d", ref.Name, ref.Port.Number)
	}
	if ref.FailureMode != "FailClose" {
		t.Errorf("the failure mode is %q", ref.FailureMode)
	}
}
