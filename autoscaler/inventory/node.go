package inventory

import (
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// HostOf returns the ID of the host memory of a node; "" means the only machine.
func HostOf(node string) api.DeviceID {
	if node == "" {
		return api.HostMemory
	}
	return api.DeviceID(node + "/" + string(api.HostMemory))
}

// IsHost reports whether d is the host memory of a machine, and no GPU.
func (d Device) IsHost() bool { return d.ID == api.HostMemory || d.ID == HostOf(d.Node) }

// Joins reports whether d can be one of n devices of an instance: a process sees only one slice of a GPU (MIG).
func (d Device) Joins(n int) bool { return n < 2 || !strings.HasPrefix(string(d.ID), "MIG-") }

// Whole returns the memory that an instance takes of a whole device: its capacity without what others use, if that is
// little. If others use much of it, no instance can have the whole device.
func (d Device) Whole() api.Bytes {
	if d.Others <= d.Capacity/10 {
		return d.Capacity - d.Others
	}
	return d.Capacity
}
