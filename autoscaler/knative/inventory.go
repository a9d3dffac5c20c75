package knative

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Labels of nodes that say how much memory each of their GPUs has. Makers write it in their own ways.
const (
	labelGPUMemory   = "nvidia.com/gpu.memory"    // in MiB
	labelAMDMemory   = "amd.com/gpu.vram"         // as "64G", by which GiB are meant
	labelIntelMemory = "gpu.intel.com/memory.max" // of all together, in bytes
)

// Labels of nodes by which whoever runs the cluster says what nothing else does: the memory of each GPU, as Kubernetes
// writes sizes, and how often each is offered. They go before the makers'.
const (
	labelOwnMemory = "rouse.dev/gpu-memory"
	labelOwnShares = "rouse.dev/gpu-shares"
)

// node is what the fleet knows of a node's GPUs.
type node struct {
	// ids are the GPUs' own, "" for one that no instance has named yet.
	ids    []api.DeviceID
	memory api.Bytes
	name   string    // of the product
	host   api.Bytes // the memory that pods may have, all together
	// shared says that several pods may have one GPU. Otherwise a pod holds the GPUs
	// that it was given, whole, be it awake or asleep.
	shared bool
	// owned says that nobody but Rouse uses its GPUs.
	owned bool
}

// placeholder names a GPU whose own name is not known.
func placeholder(node string, k int) api.DeviceID {
	return api.DeviceID(fmt.Sprintf("%s/gpu-%d", node, k))
}

// takeStock reads the nodes anew, and tells the core of what has changed.
func (f *Fleet) takeStock() {
	all, err := f.watch.nodeLister.List(labels.Everything())
	if err != nil {
		f.log.Error("the nodes can't be listed", "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[string]bool, len(all))
	for _, o := range all {
		seen[o.Name] = true
		memory := o.Status.Allocatable[corev1.ResourceMemory]
		n := f.nodes[o.Name]
		if n == nil {
			n = &node{}
			f.nodes[o.Name] = n
		}
		n.host = api.Bytes(memory.Value())
		count, shared := f.gpus(o)
		n.memory, n.name, n.shared = f.gpuMemory(o, count), product(o), shared
		n.owned = o.Labels[labelGPUs] == gpusOwned
		n.resize(count, f.heldAt(o.Name, func(*pod) bool { return true }))
	}
	for name := range f.nodes {
		if !seen[name] {
			delete(f.nodes, name)
		}
	}
	f.pooled = slices.ContainsFunc(all, pooled)
	f.tellElastic()
	f.publish()
	for _, r := range f.revisions { // whether GPUs are shared may have changed
		f.tell(r)
	}
}

// publish gives the devices to the core where they have changed: of each node the host
// memory, and its GPUs. Of those that have got another name since it says which they had.
func (f *Fleet) publish() {
	var devices []inventory.Device
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[name]
		devices = append(devices, inventory.Device{ID: inventory.HostOf(name), Node: name, Name: "memory of " + name,
			Capacity: api.Bytes(float64(n.host) * f.cfg.MemoryShare), Total: n.host})
		for k, id := range n.ids {
			d := inventory.Device{ID: id, Node: name, Name: cmp.Or(n.name, "GPU") + " of " + name, Total: n.memory, Capacity: n.memory}
			if id == "" {
				d.ID = placeholder(name, k)
			}
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 { // no node is known: there is nothing to hand out
		devices = []inventory.Device{{ID: api.HostMemory, Name: "memory of no node"}}
	}
	if reflect.DeepEqual(devices, f.devices) {
		return
	}
	f.devices = devices
	if f.core != nil {
		devices = slices.Clone(devices)
		for k := range devices {
			devices[k].Was = f.renamed[devices[k].ID]
		}
		f.core.SetDevices(devices)
	}
	clear(f.renamed) // a name may come back, for another GPU
}

// rename has all that counts with a GPU under one name count with it under another: the core,
// pods that have not said what they were given, and starts whose pods are not made.
func (f *Fleet) rename(from, to api.DeviceID) {
	f.renamed[to] = from
	now := func(ids []api.DeviceID) []api.DeviceID {
		k := slices.Index(ids, from)
		if k < 0 {
			return ids
		}
		ids = slices.Clone(ids) // it may be shared
		ids[k] = to
		return ids
	}
	for _, p := range f.pods {
		if p.role != control.RoleProvider { // whose pod names the GPUs that it is made for
			p.devices, p.status.Devices = now(p.devices), now(p.status.Devices)
		}
	}
	for _, r := range f.revisions {
		for _, s := range r.starts {
			s.grant.Devices = now(s.grant.Devices)
		}
	}
}

// gpus is the number of GPUs that a node has, and whether it offers each several times. Shares count as what they are
// shares of:
//
//  1. How often a card is offered says whoever runs the cluster, else its maker's label.
//  2. How many there are says the maker's label, where there is one and the node offers any. NVIDIA's counts before they are offered, too.
//  3. Else it follows from how many are offered.
func (f *Fleet) gpus(o *corev1.Node) (count int, shared bool) {
	own, _ := strconv.Atoi(o.Labels[labelOwnShares])
	makers := append(slices.Clone(api.GPUMakers), api.GPUMaker{Resources: f.cfg.GPUResources})
	for _, m := range makers {
		var offered int64
		for _, r := range m.Resources {
			q := o.Status.Allocatable[corev1.ResourceName(r)]
			offered += min(max(0, q.Value()), mostGPUs*mostGPUs)
			shared = shared || strings.HasSuffix(r, ".shared") && q.Value() > 0
		}
		shares := own // 1.
		if replicas, err := strconv.Atoi(o.Labels[m.Replicas]); own < 1 && err == nil {
			shares = replicas
		}
		shares = min(max(1, shares), mostGPUs)
		n, err := strconv.Atoi(o.Labels[m.Count]) // 2.
		if err != nil || n < 0 || m.Replicas == "" && offered == 0 {
			n = int(offered+int64(shares)-1) / shares // 3.
		}
		shared = shared || shares > 1 && n > 0
		count += min(n, mostGPUs)
	}
	return min(count, mostGPUs), shared
}

// product is what the cards of a node are called; empty: nobody says.
func product(o *corev1.Node) string {
	for _, m := range api.GPUMakers {
		if name := o.Labels[m.Product]; name != "" {
			return name
		}
	}
	return ""
}

// whole makes of a function what it is where no node shares its GPUs: what it declares of a
// GPU's memory doesn't matter, its pods have all of it.
func (f *Fleet) whole(fn api.Function) api.Function {
	if fn.DualPods {
		return f.apart(fn)
	}
	for _, n := range f.nodes {
		if n.shared {
			return fn
		}
	}
	fn.Memory.PerDevice, fn.Memory.Share = 0, 1
	return fn
}

// mostGPUs bounds what a label can claim of one node.
const mostGPUs = 1024

// gpuMemory is the memory of each of a node's GPUs, of which there are count.
func (f *Fleet) gpuMemory(o *corev1.Node, count int) api.Bytes {
	if b, err := api.ParseBytes(o.Labels[labelOwnMemory]); err == nil && b > 0 {
		return b
	}
	if mib, err := strconv.ParseInt(o.Labels[labelGPUMemory], 10, 64); err == nil && mib > 0 && mib < 1<<40 {
		return api.Bytes(mib) * api.MiB
	}
	if gib, err := strconv.ParseInt(strings.TrimSuffix(o.Labels[labelAMDMemory], "G"), 10, 64); err == nil && gib > 0 && gib < 1<<30 {
		return api.Bytes(gib) * api.GiB
	}
	if all, err := strconv.ParseInt(o.Labels[labelIntelMemory], 10, 64); err == nil && all > 0 && count > 0 {
		return api.Bytes(all / int64(count))
	}
	return f.cfg.DeviceMemory
}

// holds takes in which devices a pod says it was given, and returns them under the
// names that the ledger has for them. A name with a suffix "::N" is a share of a device.
// A pod can name the GPUs that its node has, and not make it have more.
func (f *Fleet) holds(p *pod, said []api.DeviceID) []api.DeviceID {
	host := p.object.Spec.NodeName
	n := f.nodes[host]
	var ids []api.DeviceID
	news := false
	for _, id := range said {
		plain, _, _ := strings.Cut(strings.TrimSpace(string(id)), "::")
		if k, err := strconv.Atoi(plain); err == nil && k >= 0 { // a number counts on its node only
			plain = string(placeholder(host, k))
		}
		switch plain {
		case "", "all", "none", "void":
			continue
		}
		real := api.DeviceID(plain)
		if n != nil && !slices.Contains(n.ids, real) && !strings.HasPrefix(plain, host+"/gpu-") {
			held := f.heldAt(host, func(q *pod) bool { return q != p && q.joined() })
			was := n.named(host, real, p.devices, func(id api.DeviceID) bool { return slices.Contains(ids, id) || held(id) })
			if was == "" {
				continue
			}
			f.rename(was, real)
			news = true
		}
		if !slices.Contains(ids, real) {
			ids = append(ids, real)
		}
	}
	if news {
		f.publish()
	}
	return ids
}

// heldAt says which GPUs of a node are held by those of its pods that count.
func (f *Fleet) heldAt(host string, counts func(*pod) bool) func(api.DeviceID) bool {
	return func(id api.DeviceID) bool {
		holds := func(p *pod) bool { return p.object.Spec.NodeName == host && slices.Contains(p.devices, id) }
		for _, p := range f.pods {
			if counts(p) && holds(p) {
				return true
			}
		}
		for _, e := range f.expiring {
			if holds(e.pod) {
				return true
			}
		}
		return false
	}
}

// resize makes room for so many GPUs, or takes away those that are too many and that nobody holds.
func (n *node) resize(count int, held func(api.DeviceID) bool) {
	for len(n.ids) < count {
		n.ids = append(n.ids, "")
	}
	for last := len(n.ids) - 1; last >= count && (count == 0 || n.ids[last] == "" || !held(n.ids[last])); last-- {
		n.ids = n.ids[:last]
	}
}

// named gives a GPU its own name, and returns the one under which it was known:
//
//  1. the one that the pod was granted, where that has none yet
//  2. else the first without one
//  3. else the one that the pod was granted, where nobody holds it: another GPU is in its place now, and has what
//     was planned for it. Kubernetes says how many GPUs a node has and not which, so this is when it is known
//  4. else the first that nobody holds, likewise
//  5. else none, "": the node has no more
func (n *node) named(host string, id api.DeviceID, granted []api.DeviceID, held func(api.DeviceID) bool) (was api.DeviceID) {
	known := func(k int) api.DeviceID { return cmp.Or(n.ids[k], placeholder(host, k)) }
	best, rank := -1, 5
	for k, own := range n.ids {
		fits := 5
		switch promised := slices.Contains(granted, known(k)); {
		case own == "" && promised:
			fits = 1
		case own == "":
			fits = 2
		case held(own):
		case promised:
			fits = 3
		default:
			fits = 4
		}
		if fits < rank {
			best, rank = k, fits
		}
	}
	if best < 0 {
		return ""
	}
	was, n.ids[best] = known(best), id
	return was
}
