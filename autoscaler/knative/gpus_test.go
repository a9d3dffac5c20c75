package knative

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api"
)

// TestGPUsOfAllMakers counts what nodes have: by what their device plugins offer, and by labels.
func TestGPUsOfAllMakers(t *testing.T) {
	ns := &nodes{state: &state{cfg: Config{GPUResources: []string{"example.com/npu"}}.withDefaults()}}
	for _, tt := range []struct {
		name    string
		offered map[corev1.ResourceName]string
		labels  map[string]string
		count   int
		shared  bool
		memory  api.Bytes
		product string
	}{
		{"none", nil, nil, 0, false, 80 * api.GiB, ""},
		{"NVIDIA's", map[corev1.ResourceName]string{"nvidia.com/gpu": "2"}, map[string]string{"nvidia.com/gpu.memory": "24564", "nvidia.com/gpu.product": "NVIDIA-L4"}, 2, false, 24564 * api.MiB, "NVIDIA-L4"},
		{"NVIDIA's in shares", map[corev1.ResourceName]string{"nvidia.com/gpu.shared": "16"}, map[string]string{"nvidia.com/gpu.replicas": "8"}, 2, true, 80 * api.GiB, ""},
		{"NVIDIA's, before they are offered", nil, map[string]string{"nvidia.com/gpu.count": "4"}, 4, false, 80 * api.GiB, ""},
		{"AMD's", map[corev1.ResourceName]string{"amd.com/gpu": "8"}, map[string]string{"amd.com/gpu.vram": "192G", "amd.com/gpu.product-name": "MI300X"}, 8, false, 192 * api.GiB, "MI300X"},
		{"AMD's that others share", map[corev1.ResourceName]string{"amd.com/gpu": "8"}, map[string]string{"rouse.dev/gpu-shares": "4", "rouse.dev/gpu-memory": "48Gi", "amd.com/gpu.vram": "192G"}, 2, true, 48 * api.GiB, ""},
		{"Intel's", map[corev1.ResourceName]string{"gpu.intel.com/i915": "2"}, map[string]string{"gpu.intel.com/product": "Max_1550", "gpu.intel.com/device.count": "2"}, 2, false, 80 * api.GiB, "Max_1550"},
		{"Intel's of the other driver, in shares", map[corev1.ResourceName]string{"gpu.intel.com/xe": "10"}, map[string]string{"rouse.dev/gpu-shares": "5", "gpu.intel.com/memory.max": "32000000000"}, 2, true, 16000000000, ""},
		{"Intel's that no plugin offers", nil, map[string]string{"gpu.intel.com/device.count": "2"}, 0, false, 80 * api.GiB, ""},
		{"two makers'", map[corev1.ResourceName]string{"nvidia.com/gpu": "1", "amd.com/gpu": "2"}, nil, 3, false, 80 * api.GiB, ""},
		{"another's", map[corev1.ResourceName]string{"example.com/npu": "3", "example.com/other": "9"}, nil, 3, false, 80 * api.GiB, ""},
		{"nonsense", map[corev1.ResourceName]string{"amd.com/gpu": "2"}, map[string]string{"rouse.dev/gpu-shares": "-3", "rouse.dev/gpu-memory": "much", "amd.com/gpu.vram": "-1G", "gpu.intel.com/memory.max": "-5"}, 2, false, 80 * api.GiB, ""},
		{"far too many", map[corev1.ResourceName]string{"amd.com/gpu": "9223372036854775807", "gpu.intel.com/xe": "9223372036854775807"}, nil, mostGPUs, false, 80 * api.GiB, ""},
	} {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
		for name, n := range tt.offered {
			o.Status.Allocatable[name] = resource.MustParse(n)
		}
		count, shared := ns.countGPUs(o)
		if count != tt.count || shared != tt.shared || ns.gpuMemory(o, count) != tt.memory || product(o) != tt.product {
			t.Errorf("%s: %d GPUs, shared %t, of %s, %q; want %d, %t, %s, %q", tt.name, count, shared, ns.gpuMemory(o, count), product(o), tt.count, tt.shared, tt.memory, tt.product)
		}
	}
}

// TestPodsClaimGPUs: those of all makers count, and of those that settings name.
func TestPodsClaimGPUs(t *testing.T) {
	ns := &nodes{state: &state{cfg: Config{GPUResources: []string{"example.com/npu"}}}}
	limits := func(name string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("2")}}}
	}
	o := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu"), limits("amd.com/gpu"), limits("gpu.intel.com/xe"), limits("example.com/npu"), limits("example.com/other"), limits("cpu")}}}
	if got := ns.claimedGPUs(o); got != 8 {
		t.Errorf("the pod claims %d GPUs, want 8", got)
	}
	if err := (Config{GPUResources: []string{"npu"}}).Validate(); err == nil {
		t.Error("a resource without a domain is taken")
	}
}
