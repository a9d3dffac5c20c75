package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

type search struct {
	*plan
	dm   *demand
	f    *function // to bring up an instance of
	need api.Memory
	// Reused buffers.
	spotList, gpuList []spot
	at                []int32
	holders           []*function
	cands, chosen     []victim
}

func (p *plan) searchFor(dm *demand, f *function) *search {
	s := p.search
	s.dm, s.f, s.need = dm, f, whole(f.Need)
	return s
}

type option struct {
	self *instance // the sleeper to wake; nil for a new instance
	node int32
	// at lists the devices, the host first; needs[k] is of at[k], beyond what the instance holds. own and touches are by
	// k, too.
	at    []int32
	needs bytes
	// own is coming memory that the sleeper itself has not released yet; nil: none.
	own bytes
	// touches is positive for devices that must not be over-committed.
	touches bytes
	victims []victim
	// fetch: the model's files must be fetched; loss is in seconds.
	rank  int
	fetch bool
	loss  float64
	// ready is when the last victim may be touched.
	ready time.Time
}

// Ranks of options, best first.
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

func (o *option) compare(other *option) int {
	return cmp.Or(
		cmp.Compare(o.rank, other.rank),
		cmp.Compare(btoi(o.fetch), btoi(other.fetch)),
		compareKept(o, other),
		cmp.Compare(o.loss, other.loss))
}

// compareKept prefers the sleeper with the requested conversation.
func compareKept(o, other *option) int {
	a, b := o.self, other.self
	if a == nil || b == nil || o.rank != wakeNow || a.f.Prefers == "" || a.Status.Level != b.Status.Level {
		return 0
	}
	return cmp.Compare(btoi(a.Status.Instance != a.f.Prefers), btoi(b.Status.Instance != b.f.Prefers))
}

// best returns the best option for dm, which may have to wait for memory or victims; nil: there is none.
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
			continue // its turn comes before a start would be done
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

// clone shares no buffers of the search.
func (o *option) clone() *option {
	c := *o
	c.at, c.victims = slices.Clone(o.at), slices.Clone(o.victims)
	return &c
}

// turn reports whether o's sleeper, which needs busy instances to give way, is awake within limit.
func (s *search) turn(o *option, limit time.Duration) bool {
	var rest time.Duration
	for _, v := range o.victims {
		rest = max(rest, v.i.rest())
	}
	limit -= rest + o.self.f.Past.Return(o.self.Status.Level)
	return max(0, o.ready.Sub(s.now)) < limit
}

// wakings returns the options to wake i, one for each place where it can be restored.
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

func (p *plan) waking(i *instance) option {
	o := option{self: i, node: i.node, at: i.at, needs: p.minus(i.up, i.held)}
	if i.settling(p.now) {
		// It may take back what it has not released yet, unless that was promised to another.
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

// mayKeep reports whether i may take back what it has not released yet: it is promised to no other.
func (l *ledger) mayKeep(i *instance, own bytes) bool {
	for k, d := range i.at {
		if own[k] > 0 && own[k] > min(l.coming[d], l.free[d]+l.coming[d]) {
			return false
		}
	}
	return true
}

func (s *search) starting(at spot) option {
	f := s.f
	o := option{node: at.node, at: s.devicesOf(at), fetch: at.fetch, loss: f.Past.Return(inventory.Stopped).Seconds()}
	o.needs = s.alloc(len(o.at))
	s.fill(o.needs, o.at, whole(f.needOn(at.node)))
	o.touches = o.needs
	return o
}

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

// rateVictims chooses the victims of o; false: everything is not enough.
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

// fits reports whether free and coming cover o's needs. Devices that it does not touch are ignored.
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

// failedOn reports whether f's last start or wake failed with self or on a GPU of at (without GPUs: the host).
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

// meet reports whether two lists have a GPU in common, or the host if one of them has no GPU.
func meet(a, b []int32) bool {
	if len(a) > 1 && len(b) > 1 {
		a, b = a[1:], b[1:]
	}
	return slices.ContainsFunc(a, func(d int32) bool { return slices.Contains(b, d) })
}

const (
	mostSpots = 24
	mostEasy  = 4  // options without interruption that end the search
	smallest  = 64 // at most this many devices are searched completely
)

func (t *Topology) large() bool { return len(t.devs) > smallest }

type spot struct {
	node, gpu int32 // gpu is below 0 for none or several
	// class is 0 if there is room, 1 if room is coming, 2 if room has to be made, 3 if work has to be interrupted; plus
	// afterAll where the last try failed.
	class int
	fetch bool
	// lack is missing now, late after coming releases; free is on its GPUs, or on its host if none is needed.
	late, lack, free api.Bytes
}

// before reports whether s is better than t. The fullest is better, so that large gaps stay whole.
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

func (s *spot) cannotBeat(best *option) bool {
	return s.class%afterAll == 3 && (best.rank < startBusy || s.fetch && !best.fetch)
}

// spots returns one place if there is room or soon is, else those where room can be made, best first.
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

func (s *search) add(at *spot) {
	if last := len(s.spotList) - 1; last+1 == mostSpots && s.large() {
		if !at.before(&s.spotList[last]) {
			return
		}
		s.spotList = s.spotList[:last]
	}
	s.spotList = insert(s.spotList, at, (*spot).before)
}

func insert(list []spot, at *spot, before func(s, t *spot) bool) []spot {
	k := len(list)
	for k > 0 && before(at, &list[k-1]) {
		k--
	}
	return slices.Insert(list, k, *at)
}

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

// shortage returns what device lacks of need, without and with coming memory; hard: what could give way without harm is
// too little.
func (l *ledger) shortage(device int32, need api.Bytes) (lack, late api.Bytes, hard bool) {
	if need <= 0 {
		return 0, 0, false
	}
	free := l.free[device]
	lack, late = max(0, need-free), max(0, need-free-l.coming[device])
	return lack, late, late > l.soft[device]
}

const afterAll = 4

// classOf ignores hard in a small world, which is searched completely.
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

// takes returns what is needed of device; fits: it is large enough, and may be one of several.
func (s *search) takes(device int32) (n api.Bytes, fits bool) {
	n = s.claim(device, s.need)
	return n, s.facts[device].capacity >= n && s.devs[device].Joins(s.need.Devices)
}

// closest returns the GPUs closest to having room; nil: too few are large enough. The list is valid until the next
// call.
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

// devicesOf lists the host first. The list is valid until the next call.
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
