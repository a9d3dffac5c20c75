package decide

import (
	"slices"

	"github.com/rouse-dev/rouse/api"
)

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
