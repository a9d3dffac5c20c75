package decide

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// ledger is the account of all devices at one time, from the instances and what the plan has booked. Devices are
// indices into Topology.devs.
type ledger struct {
	*Topology
	clock
	fs []*function // by name
	// By device. free is negative if waiting demands have booked ahead; coming will be released; sleepers, and functions
	// with more instances than they need, hold soft.
	free, coming, soft bytes
	on                 [][]*instance // that hold memory of it
	// proven are the kinds of runtimes that were suspended and came back.
	proven []string
	slab   bytes // alloc cuts from it
}

// bytes holds amounts of all devices, or of those of a list beside it.
type bytes []api.Bytes

// amounts is memory per device: n[k] bytes of device at[k].
type amounts struct {
	at []int32
	n  bytes
}

type clock struct {
	now  time.Time
	next time.Time // zero: none is needed
}

// planAt has the next plan made at t at the latest, if t is to come.
func (c *clock) planAt(t time.Time) {
	if t.After(c.now) && (c.next.IsZero() || t.Before(c.next)) {
		c.next = t
	}
}

// due reports whether t has come; if not, it calls planAt.
func (c *clock) due(t time.Time) bool {
	c.planAt(t)
	return !t.After(c.now)
}

func newLedger(t *Topology, functions []*Function, now time.Time) *ledger {
	n := len(t.devs)
	amounts := make(bytes, 3*n)
	l := &ledger{Topology: t, clock: clock{now: now}, fs: make([]*function, len(functions)), on: make([][]*instance, n),
		free: amounts[:n:n], coming: amounts[n : 2*n : 2*n], soft: amounts[2*n:]}
	for d := range t.devs {
		l.free[d] = t.devs[d].Capacity - t.devs[d].Others
	}
	l.locateAll(functions)
	for _, f := range l.fs {
		if kind := f.Spec.Runtime.Kind; f.Past.Wake[api.Suspended] > 0 && !slices.Contains(l.proven, kind) {
			l.proven = append(l.proven, kind)
		}
		l.enterFunction(f)
	}
	return l
}

func (l *ledger) locateAll(functions []*Function) {
	count, places := 0, 0
	for _, f := range functions {
		count += len(f.Instances)
		for _, i := range f.Instances {
			places += 1 + len(gpusOf(i))
		}
	}
	fs, is := make([]function, len(functions)), make([]instance, count)
	pointers, at := make([]*instance, count), make([]int32, places)
	held := make([]int, len(l.devs)) // by how many instances
	for k, f := range functions {
		n := len(f.Instances)
		l.fs[k] = &fs[k]
		fs[k].Function, fs[k].instances, pointers = f, pointers[:n:n], pointers[n:]
		for j := range n {
			i := &is[j]
			i.Instance, i.f, i.phase = f.Instances[j], &fs[k], phaseOf(f.Instances[j])
			m := 1 + len(gpusOf(i.Instance))
			i.at, at = at[:0:m], at[m:]
			l.locate(i)
			for _, d := range i.at {
				held[d]++
			}
			fs[k].instances[j] = i
		}
		is = is[n:]
	}
	places = 0
	for _, n := range held {
		places += n
	}
	lists := make([]*instance, places)
	for d, n := range held {
		l.on[d], lists = lists[:0:n], lists[n:]
	}
	l.slab = make(bytes, 4*places)
}

func (l *ledger) enterFunction(f *function) {
	f.count()
	f.desire(l.now)
	f.findSharedFiles(&l.clock)
	for _, i := range f.instances {
		n := len(i.at)
		i.held, i.up, i.leaves = l.alloc(n), l.alloc(n), l.alloc(n)
		l.computeMemory(i)
		soft := !f.Undeclared && (i.phase == phaseAsleep || (i.phase == phaseAwake || i.phase == phaseUnhealthy) && f.live() > f.desired)
		for k, d := range i.at {
			l.on[d] = append(l.on[d], i)
			l.free[d] -= i.held[k]
			l.coming[d] += i.leaves[k]
			if soft {
				l.soft[d] += i.held[k]
			}
		}
	}
}

func (l *ledger) computeMemory(i *instance) {
	f := i.f
	l.fill(i.held, i.at, i.Status.Memory)
	copy(i.up, i.held)
	if !f.Undeclared {
		l.fill(i.leaves, i.at, whole(f.Need))
		for k := range i.up {
			i.up[k] = max(i.up[k], i.leaves[k])
		}
		clear(i.leaves)
	}
	i.spare()
	if i.Status.State != api.Asleep || i.phase == phaseRising || i.reserved() {
		copy(i.held, i.up)
	}
	if len(i.at) > 0 {
		i.held[0] -= min(i.Borne, i.held[0])
		i.up[0] -= min(i.Borne, i.up[0])
	}
	switch {
	case i.phase == phaseLeaving:
		copy(i.leaves, i.held)
		i.keepCommon()
	case i.phase == phaseFalling && !f.Undeclared:
		stays := f.Past.Residue(max(i.Level, api.Level1))
		if i.Level == api.Suspended {
			stays = i.residue(api.Suspended)
			i.held[0] += l.growth(i)
		}
		l.setLeaves(i, stays)
	case i.Doing == DoingRevoke:
		l.setLeaves(i, i.Status.Memory)
	case i.settling(l.now):
		l.planAt(i.Settles)
		if i.Status.Level == api.Suspended && len(i.at) > 0 { // it may still report less than it has taken
			i.held[0] = max(i.held[0], inventory.OffDevices(f.Past.Residue(f.level())).Host-i.Borne)
		}
		l.setLeaves(i, f.Past.Residue(i.Status.Level))
	}
}

func (l *ledger) setLeaves(i *instance, stays api.Memory) {
	l.fill(i.leaves, i.at, stays)
	for k := range i.leaves {
		i.leaves[k] = i.held[k] - min(i.leaves[k], i.held[k])
	}
	i.keepCommon()
}

func (l *ledger) alloc(n int) bytes {
	if len(l.slab) < n {
		l.slab = make(bytes, max(n, 4096))
	}
	b := l.slab[:n:n]
	l.slab = l.slab[n:]
	return b
}

func (l *ledger) spend(device int32, free, coming api.Bytes) {
	l.free[device] += free
	l.coming[device] += coming
}

// bookRelease books what i releases, all but stays, as coming.
func (l *ledger) bookRelease(i *instance, stays api.Memory) {
	for k, n := range l.released(i, i.held, stays, i.at) {
		l.coming[i.at[k]] += n
	}
}

// book reserves needs for a demand that waits: of coming memory first, so that others may use free memory, which may
// become negative.
func (l *ledger) book(needs amounts) {
	for k, d := range needs.at {
		n := needs.n[k]
		c := min(n, max(0, l.coming[d]))
		l.spend(d, c-n, -c)
	}
}

// wholeDevice as an amount stands for all of a device.
const wholeDevice api.Bytes = -1

// whole turns a need of GPUs without an amount into one of whole GPUs.
func whole(m api.Memory) api.Memory {
	if m.Devices > 0 && m.PerDevice == 0 && m.Share == 0 {
		m.PerDevice = wholeDevice
	}
	return m
}

func (t *Topology) claim(d int32, m api.Memory) api.Bytes {
	f := &t.facts[d]
	switch {
	case f.host:
		return m.Host
	case m.PerDevice == wholeDevice:
		return f.whole
	}
	return max(m.PerDevice, min(api.Bytes(m.Share*float64(f.total)), f.whole))
}

func (t *Topology) fill(b bytes, at []int32, m api.Memory) {
	for k, d := range at {
		b[k] = t.claim(d, m)
	}
}

func (l *ledger) expected(i *instance) bytes {
	b := l.alloc(len(i.at))
	l.fill(b, i.at, i.f.Past.Residue(i.Status.Level))
	return b
}

// released returns what i, which holds held, releases of the devices at if it keeps stays and what others share.
func (l *ledger) released(i *instance, held bytes, stays api.Memory, at []int32) bytes {
	b := l.alloc(len(at))
	for k, d := range i.at {
		if to := slices.Index(at, d); to >= 0 {
			b[to] = held[k] - min(held[k], l.claim(d, stays))
			if k == 0 {
				b[to] -= min(b[to], i.common())
			}
		}
	}
	return b
}

// minus is at least 0.
func (l *ledger) minus(a, b bytes) bytes {
	c := l.alloc(len(a))
	for d := range a {
		c[d] = max(0, a[d]-b[d])
	}
	return c
}

func (l *ledger) roomiest() *node {
	best := &l.nodes[0]
	for k := range l.nodes {
		if n := &l.nodes[k]; l.free[n.host]+l.coming[n.host] > l.free[best.host]+l.coming[best.host] {
			best = n
		}
	}
	return best
}

// overCommitted reports whether i's reservation exceeds the memory that is free, or with coming also what will be. One
// by an earlier leader may.
func (l *ledger) overCommitted(i *instance, coming bool) bool {
	for k, d := range i.at {
		free := l.free[d]
		if coming {
			free += l.coming[d]
		}
		if free < 0 && i.held[k] > l.claim(d, i.Status.Memory) {
			return true
		}
	}
	return false
}
