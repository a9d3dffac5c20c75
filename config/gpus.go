package config

// GPUMaker describes how cluster nodes advertise the GPUs of one maker. An empty label does not exist.
type GPUMaker struct {
	Name string
	// Resources are the extended resources of GPUs, whole or shared.
	Resources []string
	// Node labels: the number of cards, their product name, and how often each is offered.
	Count, Product, Replicas string
}

// GPUMakers are those that Rouse knows. A cluster may have others (rouse-autoscaler --gpu-resource).
var GPUMakers = []GPUMaker{
	{Name: "NVIDIA", Resources: []string{"nvidia.com/gpu", "nvidia.com/gpu.shared"}, Count: "nvidia.com/gpu.count", Product: "nvidia.com/gpu.product", Replicas: "nvidia.com/gpu.replicas"},
	{Name: "AMD", Resources: []string{"amd.com/gpu"}, Product: "amd.com/gpu.product-name"},
	{Name: "Intel", Resources: []string{"gpu.intel.com/i915", "gpu.intel.com/xe"}, Count: "gpu.intel.com/device.count", Product: "gpu.intel.com/product"},
}

// GPUResources returns the resource names of all makers, in order.
func GPUResources() []string {
	var all []string
	for _, m := range GPUMakers {
		all = append(all, m.Resources...)
	}
	return all
}
