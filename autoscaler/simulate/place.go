package simulate

import "slices"

// free returns GPUs of one node for m that no instance holds; nil: too few. pick chooses one of n; nil takes the first.
func (w *world) free(m *Model, pick func(n int) int) []int {
	nodes := make([][]int, w.cfg.Nodes)
	var fit []int
	for d := range w.devices {
		if dv := &w.devices[d]; dv.holders == 0 && !dv.gone {
			nodes[dv.node] = append(nodes[dv.node], d)
		}
	}
	for n, ds := range nodes {
		if len(ds) >= m.GPUs {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	if pick == nil {
		return nodes[fit[0]][:m.GPUs:m.GPUs]
	}
	// nodes with more free ones are more likely
	var all []int
	for _, n := range fit {
		all = append(all, nodes[n]...)
	}
	first := all[pick(len(all))]
	left := slices.DeleteFunc(slices.Clone(nodes[w.devices[first].node]), func(d int) bool { return d == first })
	got := []int{first}
	for len(got) < m.GPUs {
		k := pick(len(left))
		got = append(got, left[k])
		left = slices.Delete(left, k, k+1)
	}
	slices.Sort(got)
	return got
}

// room returns the GPUs of one node with the most room for m; nil: there are none.
func (w *world) room(m *Model) []int {
	nodes := make([][]int, w.cfg.Nodes)
	for d := range w.devices {
		dv := &w.devices[d]
		if !dv.gone && dv.used+m.Device <= w.cfg.DeviceMemory && w.hosts[dv.node]+m.Host <= w.cfg.HostMemory {
			nodes[dv.node] = append(nodes[dv.node], d)
		}
	}
	var best []int
	for _, ds := range nodes {
		if len(ds) < m.GPUs {
			continue
		}
		slices.SortStableFunc(ds, func(a, b int) int { return int(w.devices[a].used - w.devices[b].used) })
		if best == nil || w.devices[ds[0]].used < w.devices[best[0]].used {
			best = ds[:m.GPUs:m.GPUs]
		}
	}
	slices.Sort(best)
	return best
}
