package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// search looks for the best way to serve one demand after another.
type search struct {
	*plan
	dm   *demand
	f    *function // the one to bring up an instance of
	need api.Memory
	// Buffers, kept for the next use.
	spotList, gpuList []spot
	at                []int32
	holders           []*function
	cands, chosen     []victim
}

// searchFor prepares the search for a demand, by an instance of f.
func (p *plan) searchFor(dm *demand, f *function) *search {
	s := p.search
	s.dm, s.f, s.need = dm, f, whole(f.Need)
	return s
}

// option is one way to bring up an instance.
type option struct {
	self *instance // the sleeper to wake; nil for a new instance
	node int32
	// at lists the devices, the host first; needs is the memory that the option takes of them beyond what the instance
	// holds already.
	at    []int32
	needs bytes
	// own is the part of the coming memory that the sleeper itself has not released yet.
	own bytes
	// touches is positive for each device that must not be over-committed: the option needs memory there or relies on a reservation.
	touches bytes
	victims []victim
	// Options are ordered by rank (see best), then by whether the model's files must be fetched, and loss, in seconds.
	rank  int
	fetch bool
	loss  float64
	// ready is the time when the last of the victims may be touched.
	ready time.Time
}

// Ranks of options, best first. Waking costs less than starting, and starting in free memory less than interrupting work.
const (
	wakeNow    = iota // wake a sleeper in free memory
	wakeComing        // wake a sleeper in coming memory
	wakeIdle          // wake a sleeper after grants or idle instances gave way
	startNow
	startComing
	startIdle
	wakeAgain  // any of the wakes, where the last try failed
	startAgain // any of the starts, where the last try failed
	wakeBusy   // wake a sleeper after busy instances gave way
	startBusy
)

// compare orders options, the better first.
func (o *option) compare(other *option) int {
	return cmp.Or(
		cmp.Compare(o.rank, other.rank),
		cmp.Compare(btoi(o.fetch), btoi(other.fetch)),
		compareKept(o, other),
		cmp.Compare(o.loss, other.loss))
}

// compareKept orders two wakes in free memory from the same level: the sleeper that has kept the requested conversation goes first.
func compareKept(o, other *option) int {
	a, b := o.self, other.self
	if a == nil || b == nil || o.rank != wakeNow || a.f.Prefers == "" || a.Status.Level != b.Status.Level {
		return 0
	}
	return cmp.Compare(btoi(a.Status.Instance != a.f.Prefers), btoi(b.Status.Instance != b.f.Prefers))
}

// best returns the best option for dm, nil if there is none. It may have to wait: for coming memory, or until its victims are ready.
func (p *plan) best(dm *demand) *option {
	s, f := p.searchFor(dm, dm.f), dm.f
	best := s.bestWake()
	if best != nil && best.rank <= wakeIdle || f.falling+f.passing > 0 || f.Bound {
		return best
	}
	turn := best != nil && s.turn(best, f.Past.Return(inventory.Stopped))
	easy := 0
	for _, at := range s.spots() {
		if best != nil && at.cannotBeat(best) {
			continue
		}
		o := s.starting(at)
		if turn && !o.fits(p.free, nil) {
			continue // its turn comes before a start would be done; only free memory is better
		}
		if !s.rate(&o) {
			continue
		}
		if best == nil || o.compare(best) < 0 {
			best = o.clone()
		}
		if o.rank <= startIdle {
			easy++
		}
		if easy == mostEasy && p.large() {
			break
		}
	}
	return best
}

// bestWake returns the best option to wake a sleeper; nil: there is none.
func (s *search) bestWake() (best *option) {
	for _, i := range s.f.instances {
		if i.phase != phaseAsleep || i.lost || i.unbound() || !s.available(i) || s.f.Bound && i.Status.Instance != s.f.Prefers {
			continue
		}
		for _, o := range s.wakings(i) {
			if s.rate(&o) && (best == nil || o.compare(best) < 0) {
				best = o.clone()
			}
		}
	}
	return best
}

// clone returns a copy of o that shares no buffers of the search.
func (o *option) clone() *option {
	c := *o
	c.at, c.victims = slices.Clone(o.at), slices.Clone(o.victims)
	return &c
}

// turn reports whether o's sleeper, which needs busy instances to give way first, is awake sooner than in limit.
func (s *search) turn(o *option, limit time.Duration) bool {
	var rest time.Duration
	for _, v := range o.victims {
		rest = max(rest, v.i.rest())
	}
	limit -= rest + o.self.f.Past.Return(o.self.Status.Level)
	return max(0, o.ready.Sub(s.now)) < limit
}

// wakings returns the options to wake i: one, or one for each place where it can be restored.
func (s *search) wakings(i *instance) (os []option) {
	if !i.movable() || i.reserved() {
		return append(os, s.waking(i))
	}
	s.spotList = s.spotList[:0]
	s.addSpots(i.node)
	for _, at := range s.spotList {
		o := s.waking(i)
		o.at = slices.Clone(s.devicesOf(at))
		host := s.minus(i.up, i.held)[0]
		o.needs = s.alloc(len(o.at))
		s.fill(o.needs, o.at, s.need)
		o.needs[0] = host
		o.touches = o.needs
		if own := o.own; own != nil {
			o.own = s.alloc(len(o.at))
			o.own[0] = own[0]
		}
		os = append(os, o)
	}
	return os
}

// waking returns the option to wake i.
func (p *plan) waking(i *instance) option {
	o := option{self: i, node: i.node, at: i.at, needs: p.minus(i.up, i.held)}
	if i.settling(p.now) {
		// It may take back the memory that it has not released yet, unless that was promised to another.
		if o.own = p.minus(i.held, p.expected(i)); !p.mayKeep(i, o.own) {
			o.needs, o.own = p.minus(i.up, p.expected(i)), nil
		}
	}
	o.touches, o.loss = o.needs, i.f.Past.Return(i.Status.Level).Seconds()
	if i.reserved() {
		o.touches, o.loss = i.up, 0
	}
	return o
}

// mayKeep reports whether i may take back memory that it has not released yet: it is promised to no other, and the device is not over-committed.
func (l *ledger) mayKeep(i *instance, own bytes) bool {
	for k, d := range i.at {
		if own[k] > 0 && own[k] > min(l.coming[d], l.free[d]+l.coming[d]) {
			return false
		}
	}
	return true
}

// starting returns the option to start an instance.
func (s *search) starting(at spot) option {
	f := s.f
	o := option{node: at.node, at: s.devicesOf(at), fetch: at.fetch, loss: f.Past.Return(inventory.Stopped).Seconds()}
	o.needs = s.alloc(len(o.at))
	s.fill(o.needs, o.at, whole(f.needOn(at.node)))
	o.touches = o.needs
	return o
}

// rate sets o's rank and victims, and reports whether o is possible.
func (s *search) rate(o *option) bool {
	base := wakeNow
	if o.self == nil {
		base = startNow
	}
	switch {
	case o.fits(s.free, nil):
		o.rank = base
	case o.fits(s.free, s.coming):
		o.rank = base + 1
	case !s.rateVictims(o, base):
		return false
	}
	if o.rank <= startIdle && s.failedOn(s.f, o.self, o.at) {
		o.rank = wakeAgain
		if o.self == nil {
			o.rank = startAgain
		}
	}
	return true
}

// rateVictims chooses the victims of o and sets its rank. It returns false if everything together is not enough.
func (s *search) rateVictims(o *option, base int) bool {
	var ok bool
	if o.victims, ok = s.victims(o); !ok {
		return false
	}
	interrupts := slices.ContainsFunc(o.victims, func(v victim) bool { return v.kind == busy })
	switch {
	case !interrupts:
		o.rank = base + 2
	case o.self != nil:
		o.rank = wakeBusy
	default:
		o.rank = startBusy
	}
	for _, v := range o.victims {
		o.loss += v.loss
		o.ready = later(o.ready, v.ready)
	}
	return true
}

// fits reports whether free and coming together cover o's needs. Devices that o does not touch are ignored, even over-committed ones.
func (o *option) fits(free, coming bytes) bool {
	for k, d := range o.at {
		have := free[d]
		if coming != nil {
			have += coming[d]
		}
		if o.touches[k] > 0 && o.needs[k] > have {
			return false
		}
	}
	return true
}

// failedOn reports whether f's last start or wake failed with the sleeper self or on a GPU of at (without GPUs: the host). The cause may be there,
// so options elsewhere come first, as long as they interrupt no work.
func (t *Topology) failedOn(f *function, self *instance, at []int32) bool {
	if f.Failures == 0 {
		return false
	}
	for _, i := range f.instances {
		if i.Failures > 0 && i.phase == phaseAsleep && (self == i || meet(i.at, at)) {
			return true
		}
	}
	return slices.ContainsFunc(at, func(d int32) bool { return slices.Contains(f.FailedOn, t.devs[d].ID) })
}

// meet reports whether two lists of devices have a GPU in common, or the host if one of them has no GPU.
func meet(a, b []int32) bool {
	if len(a) > 1 && len(b) > 1 {
		a, b = a[1:], b[1:]
	}
	return slices.ContainsFunc(a, func(d int32) bool { return slices.Contains(b, d) })
}

// Bounds of the search for a place where room has to be made. Small worlds are searched completely.
const (
	mostSpots = 24 // the number of places to look at
	mostEasy  = 4  // the number of options without interruption that end the search
	smallest  = 64 // a world of at most this many devices is small
)

// large reports whether the search for victims is bounded.
func (t *Topology) large() bool { return len(t.devs) > smallest }

// spot is a place for a new instance: a node, and on it one GPU, or as many as it needs.
type spot struct {
	node, gpu int32 // gpu is below 0 for none or several
	// class is 0 if there is room, 1 if room is coming, 2 if room has to be made, and 3 if work would have to
	// be interrupted. afterAll is added where the last try failed.
	class int
	fetch bool
	// lack is the missing memory now, late the memory that is still missing after coming releases. free is the free
	// memory of its GPUs, or of its host if it needs none.
	late, lack, free api.Bytes
}

// before reports whether s is a better place for a new instance than t:
//
//  1. there is room, or soon is
//  2. the model's files are there
//  3. the least missing memory
//  4. the fullest, so that large gaps stay whole
//  5. the first, so that the order is deterministic
func (s *spot) before(t *spot) bool {
	switch {
	case s.class != t.class:
		return s.class < t.class
	case s.fetch != t.fetch:
		return t.fetch
	case s.late != t.late:
		return s.late < t.late
	case s.lack != t.lack:
		return s.lack < t.lack
	case s.free != t.free:
		return s.free < t.free
	case s.node != t.node:
		return s.node < t.node
	}
	return s.gpu < t.gpu
}

// cannotBeat reports whether a start at s is no better than best: it interrupts work, and best does not, or its files are there.
func (s *spot) cannotBeat(best *option) bool {
	return s.class%afterAll == 3 && (best.rank < startBusy || s.fetch && !best.fetch)
}

// spots returns the places to look at for a new instance, the best first: one if there is room or soon is, else those where room can be made.
func (s *search) spots() []spot {
	s.spotList = s.spotList[:0]
	for k := range s.nodes {
		s.addSpots(int32(k))
	}
	if len(s.spotList) > 0 && s.spotList[0].class <= 1 {
		return s.spotList[:1]
	}
	return s.spotList
}

// add adds a place to the best ones.
func (s *search) add(at *spot) {
	if last := len(s.spotList) - 1; last+1 == mostSpots && s.large() {
		if !at.before(&s.spotList[last]) {
			return
		}
		s.spotList = s.spotList[:last]
	}
	s.spotList = insert(s.spotList, at, (*spot).before)
}

// insert inserts a place into a list in order.
func insert(list []spot, at *spot, before func(s, t *spot) bool) []spot {
	k := len(list)
	for k > 0 && before(at, &list[k-1]) {
		k--
	}
	return slices.Insert(list, k, *at)
}

// addSpots adds the places of a node.
func (s *search) addSpots(k int32) {
	n, devices := &s.nodes[k], s.need.Devices
	if len(n.gpus) < devices || devices == 0 && s.need.Host > s.devs[n.host].Capacity && len(s.nodes) > 1 {
		return
	}
	at := spot{node: k, gpu: -1, fetch: len(s.nodes) > 1 && !slices.Contains(s.f.Past.Nodes, n.name)}
	var hard bool
	at.lack, at.late, hard = s.shortage(n.host, s.f.needOn(k).Host)
	switch devices {
	case 0:
		at.class, at.free = s.classOf(at.lack, at.late, hard, n.host), s.free[n.host]
		s.add(&at)
	case 1:
		host := at
		for _, d := range n.gpus {
			need, fits := s.takes(d)
			if !fits {
				continue
			}
			lack, late, gpuHard := s.shortage(d, need)
			at.gpu, at.free, at.lack, at.late = d, s.free[d], host.lack+lack, host.late+late
			at.class = s.classOf(at.lack, at.late, hard || gpuHard, n.host, d)
			s.add(&at)
		}
	default:
		gpus := s.closest(n)
		if gpus == nil {
			return
		}
		on := []int32{n.host}
		for _, g := range gpus {
			at.lack, at.late, at.free = at.lack+g.lack, at.late+g.late, at.free+g.free
			hard = hard || g.class%afterAll == 3
			on = append(on, g.gpu)
		}
		at.class = s.classOf(at.lack, at.late, hard, on...)
		s.add(&at)
	}
}

// shortage returns what device lacks of need, without and with coming memory, and whether even all that could give way
// without harm is too little.
func (l *ledger) shortage(device int32, need api.Bytes) (lack, late api.Bytes, hard bool) {
	if need <= 0 {
		return 0, 0, false
	}
	free := l.free[device]
	lack, late = max(0, need-free), max(0, need-free-l.coming[device])
	return lack, late, late > l.soft[device]
}

// afterAll puts a place behind all others.
const afterAll = 4

// classOf returns the class of a place on the devices at. A small world is searched completely, so no place is hard there.
func (s *search) classOf(lack, late api.Bytes, hard bool, at ...int32) (class int) {
	switch {
	case lack == 0:
		class = 0
	case late == 0:
		class = 1
	case hard && s.large():
		class = 3
	default:
		class = 2
	}
	if s.f.Failures > 0 && s.failedOn(s.f, nil, at) {
		class += afterAll
	}
	return class
}

// takes returns what is needed of device, and whether the device is large enough, and one for several.
func (s *search) takes(device int32) (n api.Bytes, fits bool) {
	n = s.claim(device, s.need)
	return n, s.facts[device].capacity >= n && s.devs[device].Joins(s.need.Devices)
}

// closest returns as many GPUs of a node as are needed, those that are closest to having room; nil if too few are large enough. The list is valid
// until the next call.
func (s *search) closest(n *node) []spot {
	fit := s.gpuList[:0]
	for _, d := range n.gpus {
		if need, fits := s.takes(d); fits {
			lack, late, hard := s.shortage(d, need)
			g := spot{gpu: d, class: s.classOf(lack, late, hard, n.host, d), late: late, lack: lack, free: s.free[d]}
			fit = insert(fit, &g, (*spot).closer)
		}
	}
	s.gpuList = fit
	if len(fit) < s.need.Devices {
		return nil
	}
	return fit[:s.need.Devices]
}

// closer reports whether the GPU s is closer to having room than t.
func (s *spot) closer(t *spot) bool {
	switch {
	case s.class/afterAll != t.class/afterAll:
		return s.class < t.class
	case s.late != t.late:
		return s.late < t.late
	case s.lack != t.lack:
		return s.lack < t.lack
	}
	return s.free < t.free
}

// devicesOf lists the devices of a place, the host first. The list is valid until the next call.
func (s *search) devicesOf(at spot) []int32 {
	n := &s.nodes[at.node]
	on := append(s.at[:0], n.host)
	switch {
	case at.gpu >= 0:
		on = append(on, at.gpu)
	case s.need.Devices > 1:
		for _, g := range s.closest(n) {
			on = append(on, g.gpu)
		}
		slices.Sort(on[1:])
	}
	s.at = on
	return on
}
