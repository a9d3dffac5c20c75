package config

// GPUMaker describes how nodes advertise a maker's GPUs. Empty labels do not exist.
type GPUMaker struct {
	Name string
	// Whole or shared.
	Resources []string
	// Labels: number of cards, product, how often each is offered.
	Count, Product, Replicas string
}

// GPUMakers may lack some of a cluster (rouse-autoscaler --gpu-resource).
var GPUMakers = []GPUMaker{
	{Name: "NVIDIA", Resources: []string{"nvidia.com/gpu", "nvidia.com/gpu.shared"}, Count: "nvidia.com/gpu.count", Product: "nvidia.com/gpu.product", Replicas: "nvidia.com/gpu.replicas"},
	{Name: "AMD", Resources: []string{"amd.com/gpu"}, Product: "amd.com/gpu.product-name"},
	{Name: "Intel", Resources: []string{"gpu.intel.com/i915", "gpu.intel.com/xe"}, Count: "gpu.intel.com/device.count", Product: "gpu.intel.com/product"},
}

// GPUResources returns the resources of all makers.
func GPUResources() []string {
	var all []string
	for _, m := range GPUMakers {
		all = append(all, m.Resources...)
	}
	return all
}
