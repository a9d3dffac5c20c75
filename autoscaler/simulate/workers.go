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

// caches are the models' weights in the hosts' memory, once for each node. Workers copy them from there to their GPUs. The least recently
// used are dropped for others. A model's process stays, suspended: then it wakes as from level 2.
type caches struct {
	w         *world
	nodes     []map[*function]time.Duration // when each was last used
	processes []map[*function]bool
}

func newCaches(w *world) *caches {
	c := &caches{w: w}
	for range w.nodes {
		c.nodes, c.processes = append(c.nodes, map[*function]time.Duration{}), append(c.processes, map[*function]bool{})
	}
	return c
}

// forget drops the weights and processes of a node that has left.
func (c *caches) forget(node int) {
	for f := range c.nodes[node] {
		c.w.hosts[node] -= f.m.weights()
	}
	for f := range c.processes[node] {
		c.w.hosts[node] -= f.m.process()
	}
	clear(c.nodes[node])
	clear(c.processes[node])
}

// process returns the host memory of m's process without weights, suspended.
func (m *Model) process() api.Bytes {
	return m.HostResidue[api.Level2] + m.Residue[api.Level2]*api.Bytes(m.GPUs)
}

// load returns how long it takes until f is on a GPU of node: from the host's memory, from files, or with a start's loading time. The weights
// and the process stay there afterwards, if they fit.
func (c *caches) load(f *function, node int) (took time.Duration, hot bool) {
	cached, processes := c.nodes[node], c.processes[node]
	_, weights := cached[f]
	took = f.m.Load
	if hot = processes[f]; hot {
		level := api.Level2
		if weights {
			level = api.Level1
		}
		took = f.m.Wake[level] + f.m.transfer(level, restoreRate)
	} else if n := &c.w.nodes[node]; n.cold && !n.files[f] {
		took += f.m.Fetch
		n.files[f] = true
	}
	if weights {
		cached[f] = c.w.now
	}
	if !hot && c.spare(node, f.m.process()) {
		processes[f] = true
		c.w.hosts[node] += f.m.process()
	}
	if !weights && c.spare(node, f.m.weights()) {
		cached[f] = c.w.now
		c.w.hosts[node] += f.m.weights()
	}
	return took, hot
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
