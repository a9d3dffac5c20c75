package decide

import (
	"cmp"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// topology maps devices to nodes.
type topology struct {
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
	// feasibles caches by need whether any node can ever hold it.
	feasibles map[api.Memory]feasibility
}

type facts struct {
	capacity, whole, total api.Bytes
	price                  float64
}

func factsOf(d inventory.Device) facts {
	return facts{d.Capacity, d.Whole(), cmp.Or(d.Total, d.Capacity), d.Price()}
}

// node is a machine: a host memory, and GPUs.
type node struct {
	name string
	host int32
	gpus []int32
}

// newTopology maps devices to nodes. The first device is a host memory whatever its name; a GPU whose node has no host
// memory is booked with the first.
func newTopology(devices []inventory.Device) topology {
	t := topology{devs: devices, index: make(map[api.DeviceID]int32, len(devices)), named: make(map[string]int32),
		of: make([]int32, len(devices)), facts: make([]facts, len(devices)), feasibles: make(map[api.Memory]feasibility)}
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
		t.index[dev.ID], t.facts[d] = int32(d), factsOf(*dev)
		t.of[d] = find(dev.Node)
		n := &t.nodes[t.of[d]]
		if d == 0 || dev.IsHost() {
			n.host = int32(d)
			t.largest = max(t.largest, dev.Capacity)
		} else {
			n.gpus = append(n.gpus, int32(d))
		}
	}
	return t
}

// same reports whether devices are those of t, apart from their numbers.
func (t *topology) same(devices []inventory.Device) bool {
	return t.index != nil && slices.EqualFunc(t.devs, devices, func(a, b inventory.Device) bool {
		return a.ID == b.ID && a.Node == b.Node && a.Capacity == b.Capacity
	})
}

// locate finds the node and devices of i:
//
//  1. the node that it names
//  2. else the node of its GPUs
//  3. else the only machine, unless that has refused it
//
// An instance whose node or device does not exist, or that may be anywhere, is lost: its known memory is counted, and
// it is not woken.
func (t *topology) locate(i *Instance) {
	s := &i.Status
	n := int32(-1)
	if k, found := t.named[s.Node]; found && (s.Node != "" || len(t.nodes) == 1) {
		n = k // 1
	}
	i.lost = false
	i.at = append(slices.Grow(i.at[:0], 1+len(s.Devices)), -1) // the host's place
	for _, id := range s.Devices {
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
	slices.Sort(i.at[1:])
}

// feasibility tells whether a need can ever be met.
type feasibility struct {
	fits bool
	// gpus is the number of GPUs of the largest node; large is the memory of the largest GPU.
	gpus  int
	large api.Bytes
}

// feasible computes whether any node can hold need, if it were empty.
func (t *topology) feasible(need api.Memory) feasibility {
	if v, found := t.feasibles[need]; found {
		return v
	}
	var v feasibility
	for k := range t.nodes {
		n := &t.nodes[k]
		v.gpus = max(v.gpus, len(n.gpus))
		fit := 0
		for _, d := range n.gpus {
			v.large = max(v.large, t.devs[d].Capacity)
			if t.devs[d].Capacity >= need.PerDevice {
				fit++
			}
		}
		v.fits = v.fits || fit >= need.Devices && t.devs[n.host].Capacity >= need.Host
	}
	if len(t.feasibles) > 4096 {
		clear(t.feasibles)
	}
	t.feasibles[need] = v
	return v
}
