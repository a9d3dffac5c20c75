package inventory

import "github.com/rouse-dev/rouse/api"

// HostOf is the name of the host memory of a node; "" is the only machine.
func HostOf(node string) api.DeviceID {
	if node == "" {
		return api.HostMemory
	}
	return api.DeviceID(node + "/" + string(api.HostMemory))
}

// IsHost says whether d is the host memory of a machine, and no GPU.
func (d Device) IsHost() bool { return d.ID == api.HostMemory || d.ID == HostOf(d.Node) }

// Whole is what an instance takes that wants all of the device: what there is, less what
// others use where that is little. Where others use much of it there is no whole device.
func (d Device) Whole() api.Bytes {
	if d.Others <= d.Capacity/10 {
		return d.Capacity - d.Others
	}
	return d.Capacity
}

// Price is Cost with its default.
func (d Device) Price() float64 {
	if d.Cost == 0 {
		return 1
	}
	return d.Cost
}
