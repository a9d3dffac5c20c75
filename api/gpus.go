package api

import "slices"

// GPUMaker is how the nodes of a cluster offer the GPUs of one maker: by its device plugin, and by the
// labels of what finds such cards. Empty labels are those that it has not.
type GPUMaker struct {
	Name string
	// Resources are the extended resources that are GPUs, whole ones or shares of them.
	Resources []string
	// Count, Product and Replicas are labels of nodes: how many cards there are, what they are called, and how often each is offered.
	Count, Product, Replicas string
}

// GPUMakers are those whose names Rouse knows of itself. A cluster may have others (rouse-autoscaler --gpu-resource).
var GPUMakers = []GPUMaker{
	{Name: "NVIDIA", Resources: []string{"nvidia.com/gpu", "nvidia.com/gpu.shared"}, Count: "nvidia.com/gpu.count", Product: "nvidia.com/gpu.product", Replicas: "nvidia.com/gpu.replicas"},
	{Name: "AMD", Resources: []string{"amd.com/gpu"}, Product: "amd.com/gpu.product-name"},
	{Name: "Intel", Resources: []string{"gpu.intel.com/i915", "gpu.intel.com/xe"}, Count: "gpu.intel.com/device.count", Product: "gpu.intel.com/product"},
}

// GPUResources are the names of all makers' resources, in their order.
func GPUResources() []string {
	var all []string
	for _, m := range GPUMakers {
		all = slices.Concat(all, m.Resources)
	}
	return all
}
