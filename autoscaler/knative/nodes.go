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
	"k8s.io/client-go/tools/cache"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/config"
)

const (
	labelGPUMemory   = "nvidia.com/gpu.memory"    // in MiB
	labelAMDMemory   = "amd.com/gpu.vram"         // such as "64G", which means GiB
	labelIntelMemory = "gpu.intel.com/memory.max" // of all GPUs together, in bytes
)

// The operator's labels override the makers': the memory of each GPU, in Kubernetes' notation, and the number of its
// shares.
const (
	labelOwnMemory = "rouse.dev/gpu-memory"
	labelOwnShares = "rouse.dev/gpu-shares"
)

type node struct {
	// ids are the GPUs' own names, "" until an instance has reported one.
	ids    []api.DeviceID
	count  int // as Kubernetes says; pods may still hold others
	memory api.Bytes
	name   string    // of the product
	host   api.Bytes // the memory that pods may have, all together
	// shared: several pods may have one GPU. Otherwise a pod holds it completely, asleep too.
	shared bool
	owned  bool // only Rouse uses its GPUs
}

func placeholder(node string, k int) api.DeviceID {
	return api.DeviceID(fmt.Sprintf("%s/gpu-%d", node, k))
}

const (
	labelGPUs = "rouse.dev/gpus"
	gpusOwned = "owned" // only Rouse uses them
)

type nodes struct {
	*state
	byName  map[string]*node
	given   []inventory.Device            // as last given to the core
	renamed map[api.DeviceID]api.DeviceID // the GPUs' names at that time, by their present names
	elastic bool                          // as last given to the core
	pooled  bool
}

func (ns *nodes) update(all []*corev1.Node) {
	seen := make(map[string]bool, len(all))
	for _, o := range all {
		seen[o.Name] = true
		memory := o.Status.Allocatable[corev1.ResourceMemory]
		n := ns.byName[o.Name]
		if n == nil {
			n = &node{}
			ns.byName[o.Name] = n
		}
		n.host = api.Bytes(memory.Value())
		count, shared := ns.countGPUs(o)
		n.memory, n.name, n.shared = ns.gpuMemory(o, count), product(o), shared
		n.owned = o.Labels[labelGPUs] == gpusOwned
		n.count = count
		n.setCount(ns.heldAt(o.Name, func(*pod) bool { return true }))
	}
	maps.DeleteFunc(ns.byName, func(name string, _ *node) bool { return !seen[name] })
	ns.pooled = slices.ContainsFunc(all, pooled)
	ns.updateElastic()
	ns.publishDevices()
}

func (ns *nodes) publishDevices() {
	var devices []inventory.Device
	for _, name := range slices.Sorted(maps.Keys(ns.byName)) {
		n := ns.byName[name]
		devices = append(devices, inventory.Device{ID: inventory.HostOf(name), Node: name, Name: "memory of " + name,
			Capacity: n.host, Total: n.host})
		for k, id := range n.ids {
			d := inventory.Device{ID: id, Node: name, Name: cmp.Or(n.name, "GPU") + " of " + name, Total: n.memory, Capacity: n.memory}
			if id == "" {
				d.ID = placeholder(name, k)
			}
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 {
		devices = []inventory.Device{{ID: api.HostMemory, Name: "memory of no node"}}
	}
	if reflect.DeepEqual(devices, ns.given) {
		return
	}
	ns.given = devices
	if ns.core != nil {
		devices = slices.Clone(devices)
		for k := range devices {
			devices[k].Was = ns.renamed[devices[k].ID]
		}
		ns.core.SetDevices(devices)
	}
	clear(ns.renamed) // a name may come back, for another GPU
}

// renameDevice renames a GPU in pods that have not reported theirs, and in starts without a pod.
func (ns *nodes) renameDevice(from, to api.DeviceID) {
	ns.renamed[to] = from
	now := func(ids []api.DeviceID) []api.DeviceID {
		k := slices.Index(ids, from)
		if k < 0 {
			return ids
		}
		ids = slices.Clone(ids) // it may be shared
		ids[k] = to
		return ids
	}
	for _, p := range ns.pods {
		if p.role != control.RoleProvider { // a provider's pod names its GPUs
			p.devices, p.status.Devices = now(p.devices), now(p.status.Devices)
		}
	}
	for _, r := range ns.revisions {
		for _, s := range r.starts {
			s.grant.Devices = now(s.grant.Devices)
		}
	}
}

// countGPUs returns the number of a node's GPUs, and whether it offers shares of them, which count as the GPUs they
// belong to:
//
//  1. The number of shares is from the operator's label, else the maker's.
//  2. The number of GPUs is from the maker's label; NVIDIA's counts before the node offers any.
//  3. Else it is computed from the number of shares offered.
func (ns *nodes) countGPUs(o *corev1.Node) (count int, shared bool) {
	own, _ := strconv.Atoi(o.Labels[labelOwnShares])
	makers := append(slices.Clone(config.GPUMakers), config.GPUMaker{Resources: ns.cfg.GPUResources})
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

func product(o *corev1.Node) string {
	for _, m := range config.GPUMakers {
		if name := o.Labels[m.Product]; name != "" {
			return name
		}
	}
	return ""
}

// forCore returns a function as the core sees it: if no node shares its GPUs, pods have the whole GPU.
func (ns *nodes) forCore(fn api.Function) api.Function {
	if fn.DualPods {
		return ns.dualForCore(fn)
	}
	for _, n := range ns.byName {
		if n.shared {
			return fn
		}
	}
	fn.Memory.PerDevice, fn.Memory.Share = 0, 1
	return fn
}

const mostGPUs = 1024

func (ns *nodes) gpuMemory(o *corev1.Node, count int) api.Bytes {
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
	return ns.cfg.DeviceMemory
}

// heldDevices returns reported devices under their names in the ledger. A suffix "::N" marks a share. A pod can name the
// GPUs of its node, but not add any.
func (ns *nodes) heldDevices(p *pod, said []api.DeviceID) []api.DeviceID {
	host := p.object.Spec.NodeName
	n := ns.byName[host]
	var ids []api.DeviceID
	news := false
	for _, id := range said {
		plain, _, _ := strings.Cut(strings.TrimSpace(string(id)), "::")
		if k, err := strconv.Atoi(plain); err == nil && k >= 0 { // a number is valid on its node only
			plain = string(placeholder(host, k))
		}
		switch plain {
		case "", "all", "none", "void":
			continue
		}
		real := api.DeviceID(plain)
		if n != nil && !slices.Contains(n.ids, real) && !strings.HasPrefix(plain, host+"/gpu-") {
			held := ns.heldAt(host, func(q *pod) bool { return q != p && q.joined() })
			was := n.nameGPU(host, real, p.devices, func(id api.DeviceID) bool { return slices.Contains(ids, id) || held(id) })
			if was == "" {
				continue
			}
			ns.renameDevice(was, real)
			news = true
		}
		if !slices.Contains(ids, real) {
			ids = append(ids, real)
		}
	}
	if news {
		ns.publishDevices()
	}
	return ids
}

func (ns *nodes) heldAt(host string, counts func(*pod) bool) func(api.DeviceID) bool {
	return func(id api.DeviceID) bool {
		holds := func(p *pod) bool { return p.object.Spec.NodeName == host && slices.Contains(p.devices, id) }
		for _, p := range ns.pods {
			if counts(p) && holds(p) {
				return true
			}
		}
		for _, p := range ns.leaving {
			if p.expiring && holds(p) {
				return true
			}
		}
		return false
	}
}

func (ns *nodes) dropExcess(host string) {
	if n := ns.byName[host]; n != nil && len(n.ids) > n.count {
		n.setCount(ns.heldAt(host, func(*pod) bool { return true }))
		ns.publishDevices()
	}
}

func (n *node) setCount(held func(api.DeviceID) bool) {
	for len(n.ids) < n.count {
		n.ids = append(n.ids, "")
	}
	for last := len(n.ids) - 1; last >= n.count && (n.count == 0 || n.ids[last] == "" || !held(n.ids[last])); last-- {
		n.ids = n.ids[:last]
	}
}

// nameGPU gives a GPU its own name, and returns its previous ID, "" if the node has no more. It takes, in this order:
//
//  1. the pod's granted one, if that has no name yet
//  2. the first without a name
//  3. the granted one, if no pod holds it: another GPU has replaced it, which shows only now
//  4. the first that no pod holds, likewise
func (n *node) nameGPU(host string, id api.DeviceID, granted []api.DeviceID, held func(api.DeviceID) bool) (was api.DeviceID) {
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

// dualForCore: awake, a function with dual pods has its GPU to itself, so it needs more than half of the memory. The
// declared amount tells what is left for sleepers. If all GPUs are ours, it is a function like others.
func (ns *nodes) dualForCore(fn api.Function) api.Function {
	var least api.Bytes
	fn.DualPods = false
	for _, n := range ns.byName {
		if len(n.ids) == 0 || n.shared {
			continue
		}
		if least == 0 || n.memory < least {
			least = n.memory
		}
		fn.DualPods = fn.DualPods || !n.owned
	}
	if fn.Memory.PerDevice == 0 {
		fn.Memory.PerDevice = api.Bytes(cmp.Or(fn.Memory.Share, api.DefaultShare) * float64(least))
	}
	fn.Memory.Share = 0
	fn.Memory.PerDevice = max(fn.Memory.PerDevice, least/2+1)
	return fn
}

func (ns *nodes) setWholeGPUs(p *pod, s *api.InstanceStatus) {
	if n := ns.byName[p.object.Spec.NodeName]; n != nil && !n.shared && len(s.Devices) > 0 {
		s.Memory.Devices, s.Memory.PerDevice = len(s.Devices), n.memory
	}
}

// hasOtherGPUs reports whether a pod shares other GPUs than those reserved for it: their memory may be another's, so it
// begins asleep. The kubelet chooses the GPUs.
func (ns *nodes) hasOtherGPUs(p *pod, given []api.DeviceID) bool {
	n := ns.byName[p.object.Spec.NodeName]
	if n == nil || !n.shared || p.role != control.RoleInstance {
		return false
	}
	return slices.ContainsFunc(given, func(id api.DeviceID) bool { return !slices.Contains(p.devices, id) })
}

func (ns *nodes) nodeOf(ids []api.DeviceID) string {
	for name, n := range ns.byName {
		for k, id := range n.ids {
			if slices.Contains(ids, cmp.Or(id, placeholder(name, k))) {
				return name
			}
		}
	}
	return ""
}

func (ns *nodes) claimedGPUs(o *corev1.Pod) int {
	var n int64
	for k := range o.Spec.Containers {
		for _, name := range slices.Concat(config.GPUResources(), ns.cfg.GPUResources) {
			q := o.Spec.Containers[k].Resources.Limits[corev1.ResourceName(name)]
			n += q.Value()
		}
	}
	return int(min(n, mostGPUs))
}

const labelNodePool = "karpenter.sh/nodepool"

func pooled(n *corev1.Node) bool {
	id := n.Spec.ProviderID
	return strings.Contains(id, "://") && !strings.HasPrefix(id, "kind://") || n.Labels[labelNodePool] != ""
}

// updateElastic tells the core whether nodes may be added. Kubernetes keeps events for an hour.
func (ns *nodes) updateElastic() {
	on := ns.cfg.NodesOnDemand || ns.pooled || slices.ContainsFunc(ns.watch.events, func(i cache.SharedIndexInformer) bool { return len(i.GetStore().ListKeys()) > 0 })
	if on == ns.elastic || ns.core == nil {
		return
	}
	ns.elastic = on
	ns.log.Info("what no node can hold is started", "nodes may be added", on)
	ns.core.SetElastic(on)
}
