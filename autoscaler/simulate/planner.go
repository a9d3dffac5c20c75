package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// planner is like Logos (github.com/ls1intum/edutelligence): every 10 s it reassigns memory by demand. A request wakes
// a sleeper at once if it fits; everything else waits for the plan.
//
//  1. A model's score is its requests; each plan takes a sixth from the old ones.
//  2. Instances unused for Keep fall asleep.
//  3. Models with requests and no instance, the highest score first: wake a sleeper, or start, if there is room. Else
//     idle instances give way, the lowest score first, and after a minute busy ones with a lower score.
//  4. Models that need more instances get them if there is room.
//
// It was written from that description, not from the code: the scores and the minute are ours.
type planner struct {
	w         *world
	p         Policy
	functions []*planned
}

const (
	plannerTick    = 10 * time.Second
	plannerFade    = 5.0 / 6
	plannerPatient = time.Minute
)

type planned struct {
	f       *function
	score   float64
	arrived int
}

func newPlanner(w *world, p Policy) controller {
	c := &planner{w: w, p: p}
	for _, f := range w.functions {
		c.functions = append(c.functions, &planned{f: f})
	}
	w.after(plannerTick, c.plan)
	return c
}

func (c *planner) joined(int) {}

func (c *planner) left(int, []*unit) {}

func (c *planner) changed(*function) {}

func (c *planner) arrived(f *function) {
	c.functions[f.number].arrived++
	if len(f.queue) > 0 && f.live() == 0 {
		c.wakeFree(f)
	}
}

func (c *planner) wakeFree(f *function) bool {
	for _, u := range f.units {
		if u.state != asleep {
			continue
		}
		fits := c.w.hosts[c.w.devices[u.devices[0]].node]-u.host+f.m.Host <= c.w.cfg.HostMemory
		for _, d := range u.devices {
			fits = fits && c.w.devices[d].used-u.dev+f.m.Device <= c.w.cfg.DeviceMemory
		}
		if fits {
			c.w.wake(u, c.w.cfg.Hop, nil)
			return true
		}
	}
	return false
}

func (c *planner) plan() {
	order := slices.Clone(c.functions)
	for _, v := range order { // 1
		v.score = v.score*plannerFade + float64(v.arrived)
		v.arrived = 0
		c.sleepIdle(v.f) // 2
	}
	slices.SortStableFunc(order, func(a, b *planned) int { return cmp.Compare(b.score, a.score) })
	for _, v := range order {
		if len(v.f.queue) > 0 && v.f.live() == 0 { // 3
			c.bring(v)
		}
	}
	for _, v := range order {
		for n := v.f.live(); n > 0 && n < min(v.f.demand(), c.w.cfg.MaxScale) && (c.wakeFree(v.f) || c.startFree(v.f)); n++ { // 4
		}
	}
	c.w.after(plannerTick, c.plan)
}

func (c *planner) sleepIdle(f *function) {
	for _, u := range slices.Clone(f.units) {
		if u.state == awake && !u.closed && u.running == 0 && c.p.Keep != Forever && c.w.now-u.lastUse >= c.p.Keep {
			c.w.sleep(u, api.Level1, nil)
		}
	}
}

func (c *planner) startFree(f *function) bool {
	devices := c.w.room(f.m)
	if devices != nil {
		c.w.start(f, devices, c.w.cfg.Pod, nil)
	}
	return devices != nil
}

func (c *planner) bring(v *planned) {
	if c.wakeFree(v.f) || c.startFree(v.f) {
		return
	}
	var best []*unit
	lost := func(us []*unit) (s float64) {
		for _, u := range us {
			s += c.functions[u.f.number].score + 1e-9
			if u.state == asleep && u.f == v.f {
				s += 1e6 // its own goes last
			}
		}
		return s
	}
	consider := func(devices []int) {
		if us, enough := c.victims(v, devices); enough && (best == nil || lost(us) < lost(best)) {
			best = us
		}
	}
	for _, u := range v.f.units { // a sleeper's GPUs first
		if u.state == asleep {
			consider(u.devices)
		}
	}
	if best == nil {
		for d := 0; d+v.f.m.GPUs <= len(c.w.devices); d++ {
			devices := make([]int, v.f.m.GPUs)
			for k := range devices {
				devices[k] = d + k
			}
			if c.w.devices[d].node == c.w.devices[d+v.f.m.GPUs-1].node {
				consider(devices)
			}
		}
	}
	for _, u := range best {
		c.w.swaps++
		if u.state == asleep {
			c.w.stop(u, nil)
			continue
		}
		c.w.sleep(u, api.Level1, func() { c.again(v) })
	}
}

func (c *planner) again(v *planned) {
	if len(v.f.queue) > 0 && v.f.live() == 0 && !c.wakeFree(v.f) {
		c.startFree(v.f)
	}
}

// victims returns what has to give way on devices for v: awake instances, the lowest score first, then sleepers. enough
// is false if that is too little, or something there is in transition.
func (c *planner) victims(v *planned, devices []int) (us []*unit, enough bool) {
	w, m := c.w, v.f.m
	node := w.devices[devices[0]].node
	if w.nodes[node].gone {
		return nil, false
	}
	var cands []*unit
	host := w.hosts[node] + m.Host - w.cfg.HostMemory
	over := make([]api.Bytes, len(devices))
	for k, d := range devices {
		over[k] = w.devices[d].used + m.Device - w.cfg.DeviceMemory
	}
	for _, f := range w.functions {
		for _, u := range f.units {
			here := slices.ContainsFunc(u.devices, func(d int) bool { return slices.Contains(devices, d) })
			switch {
			case here && (u.state == falling || u.state == rising):
				return nil, false
			case here && u.f == v.f && u.state == asleep && slices.Equal(u.devices, devices): // the one to wake
				host -= u.host
				for k := range over {
					over[k] -= u.dev
				}
			case u.state == asleep && w.devices[u.devices[0]].node == node, here && u.state == awake && c.mayTake(v, u):
				cands = append(cands, u)
			}
		}
	}
	slices.SortStableFunc(cands, func(a, b *unit) int { // awake is less than asleep
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(c.functions[a.f.number].score, c.functions[b.f.number].score))
	})
	for _, u := range cands {
		freesHost, frees := u.host, u.dev
		if u.state == awake {
			freesHost, frees = u.host-u.f.m.HostResidue[api.Level1], u.dev-u.f.m.Residue[api.Level1]
		}
		useful := host > 0 && freesHost > 0
		for k, d := range devices {
			useful = useful || over[k] > 0 && slices.Contains(u.devices, d)
		}
		if !useful {
			continue
		}
		host -= freesHost
		for k, d := range devices {
			if slices.Contains(u.devices, d) {
				over[k] -= frees
			}
		}
		us = append(us, u)
	}
	return us, host <= 0 && !slices.ContainsFunc(over, func(b api.Bytes) bool { return b > 0 })
}

func (c *planner) mayTake(v *planned, u *unit) bool {
	if u.closed || u.f == v.f {
		return false
	}
	return u.running == 0 && len(u.f.queue) == 0 ||
		c.w.now-v.f.queue[0].at >= plannerPatient && c.functions[u.f.number].score < v.score ||
		c.w.now-v.f.queue[0].at >= 2*plannerPatient // no request waits for ever
}
