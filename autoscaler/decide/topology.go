package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Topology maps devices to nodes. It does not change, and is safe for concurrent use.
type Topology struct {
	devs  []inventory.Device
	nodes []node
	// index finds a device by its ID, named a node by its name.
	index map[api.DeviceID]int32
	named map[string]int32
	// of is the node of each device; facts are the parts of it that a search reads.
	of    []int32
	facts []facts
	// largest is the largest host memory of a node.
	largest api.Bytes
	// kinds has one node of each kind: those with the same capacities.
	kinds []int32
}

type facts struct {
	capacity, whole, total api.Bytes
	host                   bool
}

// node is a machine: a host memory, and GPUs.
type node struct {
	name string
	host int32
	gpus []int32
}

// NewTopology returns the topology of devices, which must not change afterwards. The first device is a host memory whatever its name; a GPU whose
// node has no host memory is booked with the first.
func NewTopology(devices []inventory.Device) *Topology {
	t := &Topology{devs: devices, index: make(map[api.DeviceID]int32, len(devices)), named: make(map[string]int32),
		of: make([]int32, len(devices)), facts: make([]facts, len(devices))}
	find := func(name string) int32 {
		n, found := t.named[name]
		if !found {
			n = int32(len(t.nodes))
			t.nodes = append(t.nodes, node{name: name})
			t.named[name] = n
		}
		return n
	}
	for d := range devices {
		dev := &devices[d]
		t.index[dev.ID], t.of[d] = int32(d), find(dev.Node)
		t.facts[d] = facts{dev.Capacity, dev.Whole(), cmp.Or(dev.Total, dev.Capacity), d == 0 || dev.IsHost()}
		n := &t.nodes[t.of[d]]
		if t.facts[d].host {
			n.host = int32(d)
			t.largest = max(t.largest, dev.Capacity)
		} else {
			n.gpus = append(n.gpus, int32(d))
		}
	}
	known := make(map[string]bool)
	for k := range t.nodes {
		n := &t.nodes[k]
		kind := fmt.Append(nil, int64(devices[n.host].Capacity))
		for _, d := range n.gpus {
			kind = fmt.Append(kind, ",", int64(devices[d].Capacity))
		}
		if !known[string(kind)] {
			known[string(kind)] = true
			t.kinds = append(t.kinds, int32(k))
		}
	}
	return t
}

// Devices returns the devices, which must not be changed.
func (t *Topology) Devices() []inventory.Device { return t.devs }

// LargestHost returns the largest host memory of a node.
func (t *Topology) LargestHost() api.Bytes { return t.largest }

// gpusOf returns the devices that i has, or on which it is to be restored.
func gpusOf(i *Instance) []api.DeviceID {
	if len(i.Status.Devices) == 0 && i.Status.State == api.Asleep && i.Status.Level == api.Suspended {
		return i.Grant.Devices
	}
	return i.Status.Devices
}

// locate finds the node and devices of i:
//
//  1. the node that it names
//  2. else the node of its GPUs
//  3. else the only machine, unless that has refused it
//
// An instance whose node or device does not exist, or that may be anywhere, is lost: its known memory is counted, and
// it is not woken. i.at must be empty.
func (t *Topology) locate(i *instance) {
	s := &i.Status
	n := int32(-1)
	if k, found := t.named[s.Node]; found && (s.Node != "" || len(t.nodes) == 1) {
		n = k // 1
	}
	i.at = append(i.at, -1) // the host's place
	for _, id := range gpusOf(i.Instance) {
		d, found := t.index[id]
		if !found || d == t.nodes[t.of[d]].host {
			i.lost = i.lost || !found
			continue
		}
		if n < 0 {
			n = t.of[d] // 2
		}
		if !slices.Contains(i.at, d) {
			i.at = append(i.at, d)
		}
	}
	if n < 0 && len(t.nodes) == 1 && (s.Node == "" && !s.Unplaced() || t.nodes[0].name == "") {
		n = 0 // 3
	}
	if n < 0 {
		i.lost, i.at = true, i.at[:0]
		return
	}
	i.node, i.at[0] = n, t.nodes[n].host
	if len(i.at) == 1 && i.movable() && i.reserved() {
		i.at = append(i.at, t.nodes[n].gpus...) // see unbound
	}
	slices.Sort(i.at[1:])
}
