package knative

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// requesterPod is as Knative makes one.
func requesterPod() *corev1.Pod {
	gpus := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a-00001-deployment-x-y", Namespace: "team", UID: "1", GenerateName: "a-00001-deployment-x-",
			Labels:      map[string]string{"serving.knative.dev/revision": "a-00001", "serving.knative.dev/revisionUID": "u", "pod-template-hash": "x", "app": "a-00001"},
			Annotations: map[string]string{config.AnnotationDualPods: "true", "autoscaling.knative.dev/class": config.Class}},
		Spec: corev1.PodSpec{
			NodeName: "n1", Hostname: "h", Priority: new(int32(7)), RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{
				{Name: "user-container", Image: "image", Resources: corev1.ResourceRequirements{Limits: gpus.DeepCopy(), Requests: gpus.DeepCopy()},
					Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/wait-for-drain"}}},
					Env:       []corev1.EnvVar{{Name: "K_REVISION", Value: "a-00001"}, {Name: EnvDevices, Value: "all"}},
					Ports:     []corev1.ContainerPort{{Name: "user-port", ContainerPort: 8080}}},
				{Name: "queue-proxy", Image: "queue"},
			},
		},
	}
}

var place = ProviderPod{Name: "a-00001-provider-1", Revision: "a-00001", RevisionUID: "rev", Node: "n1", Devices: []api.DeviceID{"GPU-1", "GPU-2"}, Requester: "a-00001-deployment-x-y"}

func TestDerive(t *testing.T) {
	from := requesterPod()
	p := place
	p.Patch = `{"metadata":{"labels":{"team":"red"}},"spec":{"containers":[{"name":"user-container","resources":{"requests":{"memory":"64Gi"}},"env":[{"name":"MORE","value":"1"}]}]}}`
	o, err := Derive(from, p)
	if err != nil {
		t.Fatal(err)
	}
	if o.Name != p.Name || o.Namespace != "team" || o.UID != "" || o.GenerateName != "" {
		t.Errorf("it is %s/%s with UID %q", o.Namespace, o.Name, o.UID)
	}
	for key := range o.Labels {
		if strings.Contains(key, "knative.dev") || key == "pod-template-hash" || key == "app" {
			t.Errorf("it has the label %s: Knative or a ReplicaSet would take it for its own", key)
		}
	}
	if o.Labels[LabelProvider] != "a-00001" || o.Labels["team"] != "red" || o.Annotations[AnnotationBound] != p.Requester || len(Devices(o)) != 2 || NodeOf(o) != "n1" {
		t.Errorf("labels %v, annotations %v, node %s", o.Labels, o.Annotations, NodeOf(o))
	}
	if ref := metav1.GetControllerOf(o); ref == nil || ref.Kind != "Revision" || ref.UID != "rev" || ref.BlockOwnerDeletion != nil {
		t.Errorf("its owner is %+v, want the revision, which does not wait for it", ref)
	}
	if len(o.Spec.Containers) != 1 {
		t.Fatalf("it has the containers %v", o.Spec.Containers)
	}
	c := o.Spec.Containers[0]
	if _, claims := c.Resources.Limits["nvidia.com/gpu"]; claims || len(c.Resources.Requests) != 1 || c.Resources.Requests.Memory().String() != "64Gi" || c.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("its resources are %+v, want no GPU and the patch's memory", c.Resources)
	}
	if c.Lifecycle != nil || value(c.Env, EnvDevices) != "GPU-1,GPU-2" || value(c.Env, EnvRole) != "provider" || value(c.Env, "K_REVISION") != "a-00001" || value(c.Env, "MORE") != "1" {
		t.Errorf("lifecycle %v, environment %v", c.Lifecycle, c.Env)
	}
	if o.Spec.NodeName != "" || o.Spec.Hostname != "" || o.Spec.Priority != nil || o.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("spec %+v", o.Spec)
	}
	if _, still := from.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]; !still || len(from.Spec.Containers) != 2 {
		t.Error("the requester's own pod was written to")
	}
}

// TestDeriveOfAnyImage: what brings the function into the requester's pod brings it into the provider's, unchanged.
func TestDeriveOfAnyImage(t *testing.T) {
	from := requesterPod()
	if o, err := Derive(from, place); err != nil || o.Labels[LabelInjected] != "" {
		t.Errorf("an image with the function: %v %v", o.Labels, err)
	}
	from.Annotations[config.AnnotationInjected] = "8014"
	bring := corev1.Container{Name: injected, Image: "rouse-function:v1", Command: []string{"/rouse-function"}, Args: []string{"install", "/.rouse"}}
	from.Spec.InitContainers = []corev1.Container{bring, {Name: "mine", Image: "image"}}
	o, err := Derive(from, place)
	if err != nil {
		t.Fatal(err)
	}
	if o.Labels[LabelInjected] != "true" || o.Annotations[config.AnnotationInjected] != "8014" {
		t.Errorf("labels %v, annotations %v", o.Labels, o.Annotations)
	}
	if diff := cmp.Diff(bring, o.Spec.InitContainers[0]); diff != "" || value(o.Spec.InitContainers[1].Env, EnvRole) == "" {
		t.Errorf("the init containers are %+v\n%s", o.Spec.InitContainers, diff)
	}
}

func value(env []corev1.EnvVar, name string) string {
	for _, e := range env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func TestNames(t *testing.T) {
	if got := Name("a-00001", "x7"); got != "a-00001-provider-x7" {
		t.Errorf("got %s", got)
	}
	if got := Name(strings.Repeat("a", 49)+"--00001", "abcdef"); len(got) > 63 || strings.Contains(got, "--provider") {
		t.Errorf("got %s of %d characters, want a host's name", got, len(got))
	}
}
