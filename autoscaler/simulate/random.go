package simulate

import (
	"math/rand/v2"
	"slices"
	"time"
)

// random is llm-d's fast model actuation (github.com/llm-d-incubation/llm-d-fast-model-actuation). A requester pod
// claims a GPU, which Kubernetes picks at random among the free ones. A sleeper of the function on exactly that GPU is
// woken. Otherwise an instance is started, once enough of the least recently used sleepers have gone for
// --sleeper-limit and for memory. When the requester goes, the instance falls asleep.
//
// Its source does not decide when requesters come and go; here as many come as the requests fill, and one goes when it
// was not needed for Keep. No instance gives way: requesters wait for a free GPU.
type random struct {
	w         *world
	p         Policy
	rng       *rand.Rand
	functions []*randomFunction
	pending   []*randomFunction // without a GPU, the oldest first
	claims    []*claim          // with GPUs and without an instance
	deadline  timer
}

type randomFunction struct {
	f      *function
	wanted int             // requesters that wait or rise
	needed []time.Duration // needed[n]: when n+1 instances were last needed
	before int             // how many were at the last change
}

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

func (r *random) changed(f *function) {
	rf := r.functions[f.number]
	n := min(f.demand(), r.w.cfg.MaxScale)
	for len(rf.needed) < n {
		rf.needed = append(rf.needed, 0)
	}
	for k := range max(n, rf.before) { // needed until now
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

func (r *random) schedule() {
	left := r.pending[:0]
	for _, rf := range r.pending {
		if rf.f.live()+1 > max(1, min(rf.f.demand(), r.w.cfg.MaxScale)) {
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

func (r *random) land(rf *randomFunction, devices []int) {
	for _, u := range rf.f.units {
		if u.state == asleep && slices.Equal(u.devices, devices) {
			rf.wanted--
			r.w.wake(u, r.w.cfg.Pod, nil)
			return
		}
	}
	r.w.hold(devices) // the claim, while there is no instance
	c := &claim{rf: rf, devices: devices}
	r.claims = append(r.claims, c)
	r.clear(c)
}

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
		if victim == nil { // all are awake
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

// tire lets requesters go that were not needed for Keep.
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
			r.w.sleep(u, 1, r.schedule)
		}
	}
	if next != Forever {
		r.deadline.reset(next)
	}
}
