package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Topology maps devices to nodes. It is immutable.
type Topology struct {
	devs  []inventory.Device
	nodes []node
	index map[api.DeviceID]int32
	named map[string]int32
	// by device: its node, and what a search reads of it
	of      []int32
	facts   []facts
	largest api.Bytes
	// one node of each kind: those with the same capacities
	kinds []int32
}

type facts struct {
	capacity, whole, total api.Bytes
	host                   bool
}

type node struct {
	name string
	host int32
	gpus []int32
}

// NewTopology returns the topology of devices, which must not change afterwards. The first device is a host memory
// whatever its name; a GPU whose node has none is booked with the first.
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

type group struct {
	namespace string
	model     api.ModelName
}

func (f *function) group() group {
	if f.Undeclared || f.Spec.VariantOf == "" {
		return group{}
	}
	return group{f.Spec.Name.Namespace(), f.Spec.VariantOf}
}

// groupsOf returns the variants of each model, the cheapest first.
func groupsOf(fs []*function) map[group][]*function {
	groups := make(map[group][]*function)
	for _, f := range fs {
		if g := f.group(); g != (group{}) {
			groups[g] = append(groups[g], f)
		}
	}
	for _, variants := range groups {
		slices.SortFunc(variants, func(a, b *function) int {
			return cmp.Or(cmp.Compare(a.Spec.Price(), b.Spec.Price()), cmp.Compare(a.Spec.Name, b.Spec.Name))
		})
	}
	return groups
}

// chooseVariant sets dm.f to the variant that serves dm, unless it wants an instance for itself (min-scale, an order,
// or requests that named it):
//
//  1. Others have places for the waiting requests: none, and why says so.
//  2. The cheapest that can have one more without interrupting work, those that miss their target with a single request
//     last.
//  3. The cheapest that can have one more at all.
//  4. Its own function, which reports what is wrong.
func (q *queue) chooseVariant(dm *demand) (why string) {
	f := dm.f
	all := q.groups[f.group()]
	if len(all) < 2 || dm.class == kept || f.Waiting > f.Shared || f.Waiting == 0 && !f.pressed {
		return ""
	}
	if places := q.placesBeside(f, all); dm.class == first && f.Waiting <= places || dm.class == extra && !f.pressed && f.Waiting+f.Running <= q.capacity(f)+places { // 1
		return fmt.Sprintf("other variants of %s are awake or on their way, with room for %d more", f.Spec.VariantOf, places)
	}
	var best *function
	var rank int
	for _, v := range all {
		r, possible := q.rankVariant(dm, v)
		if possible && (best == nil || r < rank) { // 2, 3
			best, rank = v, r
		}
	}
	if best == nil && f.live() >= max(1, f.Spec.MaxScale) {
		return fmt.Sprintf("%s, its max-scale, are awake or on their way, and no other variant of %s can have one more now", many(f.live(), "instance"), f.Spec.VariantOf)
	}
	if best != nil && best != f {
		dm.why = fmt.Sprintf("%s at %s, a variant of %s", dm.why, f.Spec.Name, f.Spec.VariantOf)
		best.starved = f.starved
		dm.f = best
	}
	q.chosen = append(q.chosen, dm.f)
	return ""
}

// overflowDemand adds a demand for requests at f, at its max-scale, that may go to other variants.
func (q *queue) overflowDemand(f *function, ds []*demand) []*demand {
	if f.group() == (group{}) || len(q.groups[f.group()]) < 2 || f.scaled || f.frozen() || f.refused ||
		f.Shared == 0 || f.Waiting > f.Shared || f.awake < max(1, f.Spec.MaxScale) || f.places() <= f.live() {
		return ds
	}
	if !q.due(f.WaitingSince.Add(q.pol.ScaleUpAfter)) {
		return ds
	}
	return append(ds, &demand{f: f, class: extra, why: fmt.Sprintf("%d waiting and %d running with %d awake, its max-scale", f.Waiting, f.Running, f.live())})
}

// rankVariant returns a rank; lower is better.
func (q *queue) rankVariant(dm *demand, v *function) (rank int, possible bool) {
	if v.frozen() || v.scaled || v.refused || v.gives || q.failing(v) || v.live()+q.chosenOf(v) >= max(1, v.Spec.MaxScale) || !q.due(v.RetryAt) {
		return 0, false
	}
	if _, err := q.impossible(v.Function, q.pol.Advice); err != nil {
		return 0, false
	}
	attempt, starved := *dm, v.starved
	attempt.f, v.starved = v, dm.f.starved // as if v had waited as long
	o := q.best(&attempt)
	v.starved = starved
	switch {
	case o == nil && v != dm.f:
		return 0, false
	case o == nil:
		return 3, true
	case o.rank > startIdle:
		return 2, true
	case v.slow():
		return 1, true
	}
	return 0, true
}

func (f *function) slow() bool {
	target := f.Spec.Target.TTFT
	return target > 0 && f.Load.TTFT > target && f.Waiting+f.Running <= f.awake
}

// placesBeside returns how many requests the other variants can take in addition to their own.
func (q *queue) placesBeside(f *function, all []*function) (n int) {
	for _, v := range all {
		if v != f && !v.frozen() && !v.refused {
			n += max(0, q.capacity(v)-v.Waiting-v.Running)
		}
	}
	return n
}

func (q *queue) capacity(f *function) int {
	return (f.awake + f.rising + q.chosenOf(f)) * max(1, f.Spec.Concurrency)
}

func (q *queue) chosenOf(f *function) (n int) {
	for _, v := range q.chosen {
		if v == f {
			n++
		}
	}
	return n
}
