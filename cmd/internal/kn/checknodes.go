package kn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/config"
)

// discovery has for each maker of GPUs the node label with a GPU's memory, the device plugin, and the labels of nodes
// with a card.
var discovery = map[string]struct {
	memory, plugin string
	cards          []string
}{
	"NVIDIA": {"nvidia.com/gpu.memory", "helm install nvdp nvdp/nvidia-device-plugin (or NVIDIA's GPU operator), with gfd.enabled=true",
		[]string{"feature.node.kubernetes.io/pci-10de.present", "feature.node.kubernetes.io/pci-0302_10de.present", "feature.node.kubernetes.io/pci-0300_10de.present", "nvidia.com/gpu.present"}},
	"AMD": {"amd.com/gpu.vram", "helm install amd-gpu rocm/gpu-operator-charts (or ROCm's k8s-device-plugin, with its node labeller)",
		[]string{"feature.node.kubernetes.io/pci-1002.present", "feature.node.kubernetes.io/amd-gpu", "feature.node.kubernetes.io/pci-0300_1002.present"}},
	"Intel": {"gpu.intel.com/memory.max", "Intel's device plugins operator with a GpuDevicePlugin",
		[]string{"intel.feature.node.kubernetes.io/gpu"}},
}

// ownMemory is the label that the cluster's operator sets.
const ownMemory = "rouse.dev/gpu-memory"

func (c *checker) nodes(ctx context.Context) {
	all, err := list[corev1.Node](ctx, c.cluster, nodes, "", "")
	if err != nil {
		c.failed("gpus", err)
		return
	}
	any := false
	for _, m := range config.GPUMakers {
		maker := discovery[m.Name]
		offers := map[string]int64{}
		var bare, unsized []string
		for _, n := range all {
			var offered int64
			for _, r := range m.Resources {
				q := n.Status.Allocatable[corev1.ResourceName(r)]
				offered += q.Value()
			}
			card := slices.ContainsFunc(maker.cards, func(l string) bool { return n.Labels[l] == "true" })
			switch {
			case offered > 0:
				offers[n.Name] = offered
				if n.Labels[maker.memory] == "" && n.Labels[ownMemory] == "" {
					unsized = append(unsized, n.Name)
				}
			case card:
				bare = append(bare, n.Name)
			}
		}
		if len(bare) > 0 {
			any = true
			c.add("device plugin", resultMissing, maker.plugin, "%s has a GPU of %s that its kubelet does not offer", list3(bare), m.Name)
		}
		if len(offers) == 0 {
			continue
		}
		any = true
		var sum int64
		for _, n := range offers {
			sum += n
		}
		c.add("gpus", resultOK, "", "%s: %d on %s", m.Name, sum, list3(slices.Sorted(maps.Keys(offers))))
		if len(unsized) > 0 {
			c.add("gpu memory", resultWarning, "run what labels nodes ("+maker.plugin+"), or say it: kubectl label node NAME "+ownMemory+"=24Gi", "unknown for %s: 80 GiB are taken to be there", list3(unsized))
		}
		if m.Name == "NVIDIA" {
			c.runtimeClass(ctx)
		}
		c.shared(all)
	}
	if !any {
		c.add("gpus", resultWarning, "models run on CPUs. For GPUs install their device plugin", "no node of %d offers one", len(all))
	}
}

func list3(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

func (c *checker) shared(all []corev1.Node) {
	if c.plan.overlay != "time-slicing" {
		return
	}
	for _, n := range all {
		if v := n.Labels["nvidia.com/gpu.replicas"]; v != "" && v != "1" {
			c.add("time slicing", resultOK, "", "%s offers each GPU %s times", n.Name, v)
			return
		}
	}
	c.add("time slicing", resultWarning, "point the device plugin at the ConfigMap rouse-time-slicing once it is there: helm upgrade nvdp nvdp/nvidia-device-plugin -n kube-system --reuse-values --set config.name=rouse-time-slicing --set gfd.enabled=true", "no node offers a GPU more than once")
}

// Whether containers need the runtime class depends on each node's container runtime.
func (c *checker) runtimeClass(ctx context.Context) {
	_, err := get[metav1.PartialObjectMetadata](ctx, c.cluster, runtimeClasses, "", "nvidia")
	switch {
	case apierrors.IsNotFound(err):
		c.add("runtime class", resultOK, "", "none is called nvidia: nodes must have NVIDIA's container runtime as their default")
	case err != nil:
		c.failed("runtime class", err)
	default:
		features, err := c.configMap(ctx, "config-features")
		if v := features["kubernetes.podspec-runtimeclassname"]; err == nil && (v == "" || v == "disabled") {
			c.add("runtime class", resultWarning, "where nodes do not have NVIDIA's container runtime as their default, set kubernetes.podspec-runtimeclassname to enabled in the ConfigMap config-features, and runtimeClassName: nvidia in functions", "nvidia is there, and Knative lets no Service name it")
			return
		}
		c.add("runtime class", resultOK, "", "nvidia")
	}
}
