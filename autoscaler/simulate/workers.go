package simulate

import (
	"cmp"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// worker is as many GPUs of a node as the largest model needs, on which one instance runs at a time.
type worker struct {
	node    int
	devices []int
	u       *unit // running or last; nil: none
}

// Remaining GPUs of a node are not used.
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

func (k *worker) on(m *Model) []int { return k.devices[:m.GPUs:m.GPUs] }

// weights returns how much host memory m's weights take.
func (m *Model) weights() api.Bytes {
	return max(0, m.HostResidue[api.Level1]-m.HostResidue[api.Level2])
}

// caches are the models' weights in the hosts' memory, once for each node. The least recently used are dropped for
// others. A model's process stays, suspended: then it wakes as from level 2.
type caches struct {
	w     *world
	nodes []map[*function]*cached
}

type cached struct {
	weights bool
	used    time.Duration // when it last was
}

func newCaches(w *world) *caches {
	c := &caches{w: w}
	for range w.nodes {
		c.nodes = append(c.nodes, map[*function]*cached{})
	}
	return c
}

func (c *caches) forget(node int) {
	c.w.hosts[node] = 0
	clear(c.nodes[node])
}

// process returns the host memory of m's process without weights, suspended.
func (m *Model) process() api.Bytes {
	return m.HostResidue[api.Level2] + m.Residue[api.Level2]*api.Bytes(m.GPUs)
}

// load returns how long it takes until f is on a GPU of node. The process and the weights stay in host memory, if they
// fit.
func (c *caches) load(f *function, node int) (took time.Duration, hot bool) {
	has := c.nodes[node][f]
	took = f.m.Load
	if hot = has != nil; hot {
		level := api.Level2
		if has.weights {
			level = api.Level1
		}
		took = f.m.Wake[level] + f.m.transfer(level, restoreRate)
	} else if n := &c.w.nodes[node]; n.cold && !n.files[f] {
		took += f.m.Fetch
		n.files[f] = true
	}
	if !hot && c.spare(node, f.m.process()) {
		has = &cached{}
		c.nodes[node][f] = has
	}
	if has != nil {
		has.used = c.w.now
		has.weights = has.weights || c.spare(node, f.m.weights())
	}
	return took, hot
}

// spare takes n of a host's memory, for which it drops weights; false: there is too little.
func (c *caches) spare(node int, n api.Bytes) bool {
	for c.w.hosts[node]+n > c.w.cfg.HostMemory {
		var oldest *function
		var of *cached
		for g, has := range c.nodes[node] {
			if has.weights && (of == nil || cmp.Or(cmp.Compare(has.used, of.used), cmp.Compare(g.number, oldest.number)) < 0) {
				oldest, of = g, has
			}
		}
		if of == nil {
			return false
		}
		of.weights = false
		c.w.hosts[node] -= oldest.m.weights()
	}
	c.w.hosts[node] += n
	return true
}
