package simulate

import (
	"cmp"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// worker is a GPU, or as many GPUs of a node as the largest model needs, on which one instance runs at a time. Policies with their own
// engines ("tokens", "prewarm") place models on workers.
type worker struct {
	node    int
	devices []int
	u       *unit // the running or last instance; nil: none
}

// workersOf divides the GPUs into workers. Remaining GPUs of a node are not used.
func workersOf(w *world) []*worker {
	size := 1
	for _, f := range w.functions {
		size = max(size, f.m.GPUs)
	}
	var ws []*worker
	var of []int
	for d := range w.devices {
		if len(of) > 0 && w.devices[of[0]].node != w.devices[d].node {
			of = nil
		}
		if of = append(of, d); len(of) == size {
			ws = append(ws, &worker{node: w.devices[d].node, devices: of})
			of = nil
		}
	}
	return ws
}

// on returns the GPUs of k that m uses.
func (k *worker) on(m *Model) []int { return k.devices[:m.GPUs:m.GPUs] }

// weights returns the size of m's weights in host memory.
func (m *Model) weights() api.Bytes {
	return max(0, m.HostResidue[api.Level1]-m.HostResidue[api.Level2])
}

// engineHost is the host memory of a worker's process, without weights.
const engineHost = 4 * api.GiB

// caches are the models' weights in the hosts' memory, once for each node. Workers copy them from there to their GPUs. The least recently
// used are dropped for others.
type caches struct {
	w     *world
	nodes []map[*function]time.Duration // when each was last used
}

func newCaches(w *world) *caches {
	c := &caches{w: w, nodes: make([]map[*function]time.Duration, len(w.nodes))}
	for n := range c.nodes {
		c.nodes[n] = make(map[*function]time.Duration)
	}
	return c
}

// forget drops the weights of a node that has left.
func (c *caches) forget(node int) {
	for f := range c.nodes[node] {
		c.w.hosts[node] -= f.m.weights()
	}
	clear(c.nodes[node])
}

// load returns how long it takes until f is on a GPU of node: from the host's memory, or with a start's loading time. The weights stay
// there afterwards, if they fit; room is the memory of the worker's process.
func (c *caches) load(f *function, node int, room api.Bytes) (took time.Duration, hot bool) {
	cached := c.nodes[node]
	if _, hot = cached[f]; hot {
		cached[f] = c.w.now
		c.spare(node, room)
		return f.m.Wake[api.Level1], true
	}
	took = f.m.Load
	if n := &c.w.nodes[node]; n.cold && !n.files[f] {
		took += f.m.Fetch
		n.files[f] = true
	}
	if need := f.m.weights(); c.spare(node, need+room) {
		cached[f] = c.w.now
		c.w.hosts[node] += need
	}
	return took, false
}

// spare makes room in a host's memory, and reports whether there is enough.
func (c *caches) spare(node int, room api.Bytes) bool {
	cached := c.nodes[node]
	for c.w.hosts[node]+room > c.w.cfg.HostMemory && len(cached) > 0 {
		var oldest *function
		for g, at := range cached {
			if oldest == nil || cmp.Or(cmp.Compare(at, cached[oldest]), cmp.Compare(g.number, oldest.number)) < 0 {
				oldest = g
			}
		}
		delete(cached, oldest)
		c.w.hosts[node] -= oldest.m.weights()
	}
	return c.w.hosts[node]+room <= c.w.cfg.HostMemory
}
