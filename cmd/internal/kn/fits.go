package kn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// fits says why no node's GPUs could ever run a function. Memory in use does not count: it is taken from sleepers.
func fits(devices []admin.Device, need api.Memory) error {
	if need.Devices == 0 {
		return nil
	}
	nodes := map[string]int{} // of the size
	var largest admin.Device
	all := 0
	for _, d := range devices {
		if isHost(d) {
			continue
		}
		all++
		if d.Total > largest.Total {
			largest = d
		}
		if d.Total >= need.PerDevice {
			nodes[d.Node]++
		}
	}
	size := ""
	if need.PerDevice > 0 {
		size = " of " + need.PerDevice.String()
	}
	best, most := "", 0
	for node, n := range nodes {
		if n > most || n == most && node < best {
			best, most = node, n
		}
	}
	switch {
	case all == 0:
		return fmt.Errorf("the cluster has no GPU that Rouse knows of, and the function wants %d: `kn rouse check` says what is missing; --gpus 0 runs it without; --no-check makes it for a node that is yet to come", need.Devices)
	case most == 0:
		return fmt.Errorf("no GPU has %s: the largest is %s (%s) with %s; say less with --gpu-memory, or --no-check for a node that is yet to come", need.PerDevice, largest.ID, strings.TrimSpace(largest.Name), largest.Total)
	case most < need.Devices:
		return fmt.Errorf("no node has %d GPUs%s: %s has the most, %d; say --gpus %[4]d, or --no-check for a node that is yet to come", need.Devices, size, best, most)
	}
	return nil
}

func isHost(d admin.Device) bool {
	return d.ID == api.HostMemory || d.ID == api.DeviceID(d.Node+"/"+string(api.HostMemory))
}

func sameModel(all []admin.Function, f api.Function) []string {
	var names []string
	for _, other := range all {
		service := other.Function.ServiceName()
		if service == f.Service || slices.Contains(names, string(service)) {
			continue
		}
		if other.Function.VariantOf == "" && slices.Contains(other.Function.Names(), f.Model) {
			names = append(names, string(service))
		}
	}
	slices.Sort(names)
	return names
}
