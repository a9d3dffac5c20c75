package simulate

import (
	"math/rand/v2"
	"slices"
	"time"
)

// random is llm-d's fast model actuation (github.com/llm-d-incubation/llm-d-fast-model-actuation), the reference of
// dual pods. A requester pod claims a GPU, which Kubernetes picks without knowing the sleepers: at random among the
// free ones. A sleeper of the function on exactly that GPU is woken (hot). Otherwise an instance is started there, once
// enough of the least recently used sleepers have gone for the limit on sleepers (--sleeper-limit, 2 in its chart) and
// for memory. When the requester goes, the instance falls asleep and the GPU is free.
//
// Its source does not decide when requesters come and go; here our rule does, immediately: as many as the requests
// fill, and one goes when it was not needed for Keep. A requester is a pod ([Config.Pod]); no instance gives way, so
// requesters wait for a free GPU, the oldest first.
type random struct {
	w         *world
	p         Policy
	rng       *rand.Rand
	functions []*randomFunction
	pending   []*randomFunction // requesters without a GPU, the oldest first
	claims    []*claim          // requesters with GPUs and without an instance
	deadline  timer
}

type randomFunction struct {
	f      *function
	wanted int             // requesters that wait or rise
	needed []time.Duration // when n+1 instances were last needed
	before int             // the number at the last change
}

// claim is a requester's hold on GPUs without an instance yet.
type claim struct {
	rf      *randomFunction
	devices []int
	lost    bool // with its node
}

func newRandom(w *world, p Policy) controller {
	if p.SleeperLimit == 0 {
		p.SleeperLimit = 2
	}
	r := &random{w: w, p: p, rng: rand.New(rand.NewPCG(w.cfg.Seed, 0x5eed))}
	r.deadline = timer{c: &w.clock, do: r.tire}
	for _, f := range w.functions {
		r.functions = append(r.functions, &randomFunction{f: f})
	}
	return r
}

func (r *random) arrived(f *function) { r.changed(f) }

// changed requests as many requesters as needed, and records the need.
func (r *random) changed(f *function) {
	rf := r.functions[f.number]
	n := min(f.demand(), r.w.cfg.MaxScale)
	for len(rf.needed) < n {
		rf.needed = append(rf.needed, 0)
	}
	for k := range max(n, rf.before) { // those needed so far were needed until now
		rf.needed[k] = r.w.now
	}
	rf.before = n
	for rf.f.live()+rf.wanted < n {
		rf.wanted++
		r.pending = append(r.pending, rf)
	}
	r.schedule()
	if keep := r.p.keep(f.m); keep != Forever && (!r.deadline.on() || r.deadline.at > r.w.now+keep) {
		r.deadline.reset(r.w.now + keep)
	}
}

// schedule lets requesters land.
func (r *random) schedule() {
	left := r.pending[:0]
	for _, rf := range r.pending {
		if rf.f.live()+1 > max(1, min(rf.f.demand(), r.w.cfg.MaxScale)) { // no longer needed
			rf.wanted--
			continue
		}
		devices := r.w.free(rf.f.m, func(n int) int { return r.rng.IntN(n) })
		if devices == nil {
			left = append(left, rf)
			continue
		}
		r.land(rf, devices)
	}
	r.pending = left
}

// land gives a requester its GPUs, and the GPUs an instance.
func (r *random) land(rf *randomFunction, devices []int) {
	for _, u := range rf.f.units {
		if u.state == asleep && slices.Equal(u.devices, devices) {
			rf.wanted--
			r.w.wake(u, r.w.cfg.Pod, nil)
			return
		}
	}
	r.w.hold(devices) // the requester's claim, while there is no instance
	c := &claim{rf: rf, devices: devices}
	r.claims = append(r.claims, c)
	r.clear(c)
}

// left deletes the requesters of a node, and has them replaced.
func (r *random) left(node int, _ []*unit) {
	r.claims = slices.DeleteFunc(r.claims, func(c *claim) bool {
		c.lost = r.w.devices[c.devices[0]].node == node
		if c.lost {
			c.rf.wanted--
		}
		return c.lost
	})
	for _, rf := range r.functions {
		r.changed(rf.f)
	}
}

func (r *random) joined(int) { r.schedule() }

// clear ends sleepers until a new instance may start on the devices of c.
func (r *random) clear(c *claim) {
	if c.lost {
		return
	}
	rf, devices := c.rf, c.devices
	m, w := rf.f.m, r.w
	node := w.devices[devices[0]].node
	var victim *unit
	older := func(u *unit) {
		if victim == nil || u.lastUse < victim.lastUse {
			victim = u
		}
	}
	crowded := slices.ContainsFunc(devices, func(d int) bool { return w.devices[d].used+m.Device > w.cfg.DeviceMemory }) ||
		r.sleepersOn(devices, nil) >= r.p.SleeperLimit
	if crowded {
		r.sleepersOn(devices, older)
	} else if w.hosts[node]+m.Host > w.cfg.HostMemory {
		for _, f := range w.functions {
			for _, u := range f.units {
				if u.state == asleep && w.devices[u.devices[0]].node == node {
					older(u)
				}
			}
		}
		if victim == nil { // all are awake: wait until one sleeps
			w.after(time.Second, func() { r.clear(c) })
			return
		}
	}
	if victim != nil {
		w.swaps++
		w.stop(victim, func() { r.clear(c) })
		return
	}
	w.release(devices)
	r.claims = slices.DeleteFunc(r.claims, func(d *claim) bool { return d == c })
	rf.wanted--
	w.start(rf.f, devices, w.cfg.Pod, nil)
}

// sleepersOn counts the sleepers on devices, and calls each with them.
func (r *random) sleepersOn(devices []int, each func(*unit)) int {
	n := 0
	for _, f := range r.w.functions {
		for _, u := range f.units {
			if u.state == asleep && slices.ContainsFunc(u.devices, func(d int) bool { return slices.Contains(devices, d) }) {
				n++
				if each != nil {
					each(u)
				}
			}
		}
	}
	return n
}

// tire lets requesters go that were not needed for Keep, the youngest first.
func (r *random) tire() {
	next := Forever
	for _, rf := range r.functions {
		n, keep := rf.f.live(), r.p.keep(rf.f.m)
		need := min(rf.f.demand(), r.w.cfg.MaxScale)
		for k := len(rf.f.units) - 1; k >= 0 && n > need && keep != Forever; k-- {
			u := rf.f.units[k]
			if u.state != awake || u.closed {
				continue
			}
			due := u.since + keep
			if n <= len(rf.needed) {
				due = max(due, rf.needed[n-1]+keep)
			}
			n--
			if due > r.w.now {
				next = min(next, due)
				continue
			}
			r.w.sleep(u, 1, func() { r.schedule() })
		}
	}
	if next != Forever {
		r.deadline.reset(next)
	}
}
