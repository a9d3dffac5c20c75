package decide

import (
	"cmp"
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
func (t *topology) large() bool { return len(t.devs) > smallest }

// spot is a place for a new instance: a node, and on it one GPU, or as many as it needs.
type spot struct {
	node, gpu int32 // gpu is below 0 for none or several
	// class is 0 if there is room, 1 if room is coming, 2 if room has to be made, and 3 if even all idle instances
	// would not be enough. afterAll is added where the last try failed.
	class int
	fetch bool
	price float64
	// lack is the missing memory, late the same after what is coming; free is what is free of its GPUs, of its host if
	// it needs none.
	late, lack, free api.Bytes
}

// compare orders places for a new instance, the better first:
//
//  1. there is room, or soon is
//  2. the model's files are there
//  3. the cheaper devices
//  4. the least missing memory
//  5. the fullest, so that large gaps stay whole
//  6. the first, so that the order is deterministic
func (s *spot) compare(t *spot) int {
	if s.class != t.class { // a fast path: most differ here, and there are many
		return cmp.Compare(s.class, t.class)
	}
	return cmp.Or(
		cmp.Compare(btoi(s.fetch), btoi(t.fetch)),
		cmp.Compare(s.price, t.price),
		cmp.Compare(s.late, t.late),
		cmp.Compare(s.lack, t.lack),
		cmp.Compare(s.free, t.free),
		cmp.Compare(s.node, t.node),
		cmp.Compare(s.gpu, t.gpu))
}

// spotsOf offers the places of a node.
func (p *plan) spotsOf(f *Function, k int32, add func(*spot)) {
	switch {
	case f.Need.Devices == 0:
		p.hostSpot(f, k, add)
	case f.Need.Devices > 1:
		p.setSpot(f, k, add)
	default:
		p.gpuSpots(f, k, add)
	}
}

// shortage returns what device lacks of need, without and with coming memory, and whether even all that could give way
// without harm is too little.
func (p *plan) shortage(device int32, need api.Bytes) (lack, late api.Bytes, hard bool) {
	if need <= 0 {
		return 0, 0, false
	}
	free := p.free[device]
	lack, late = max(0, need-free), max(0, need-free-p.coming[device])
	return lack, late, late > p.w.soft[device]
}

func classOf(lack, late api.Bytes, hard bool) int {
	switch {
	case lack == 0:
		return 0
	case late == 0:
		return 1
	case hard:
		return 3
	}
	return 2
}

// fetches reports whether the model's files have yet to be brought to a node.
func (p *plan) fetches(f *Function, n *node) bool {
	return len(p.w.nodes) > 1 && !slices.Contains(f.Past.Nodes, n.name)
}

// afterAll puts a place behind all others.
const afterAll = 4

// luck returns class, plus afterAll where f's last try failed on the devices.
func (p *plan) luck(class int, f *Function, at ...int32) int {
	if f.Failures > 0 && p.again(f, &option{at: at}) {
		return class + afterAll
	}
	return class
}

func (p *plan) hostSpot(f *Function, k int32, add func(*spot)) {
	n := &p.w.nodes[k]
	if f.Need.Host > p.w.devs[n.host].Capacity && len(p.w.nodes) > 1 {
		return
	}
	lack, late, hard := p.shortage(n.host, f.needOn(k).Host)
	p.spot = spot{node: k, gpu: -1, class: p.luck(p.ease(classOf(lack, late, hard)), f, n.host), fetch: p.fetches(f, n), late: late, lack: lack, free: p.free[n.host]}
	add(&p.spot)
}

// ease drops the class of hard places in a small world, which is searched completely anyway.
func (p *plan) ease(class int) int {
	if !p.w.large() {
		return min(class, 2)
	}
	return class
}

// takes returns what f takes of device, and whether the device is large enough.
func (p *plan) takes(f *Function, device int32) (api.Bytes, bool) {
	d := &p.w.facts[device]
	n := d.claim(whole(f.Need))
	return n, d.capacity >= n
}

func (p *plan) gpuSpots(f *Function, k int32, add func(*spot)) {
	n := &p.w.nodes[k]
	if len(n.gpus) == 0 {
		return
	}
	hostLack, hostLate, hostHard := p.shortage(n.host, f.needOn(k).Host)
	s := &p.spot
	*s = spot{node: k, fetch: p.fetches(f, n)}
	for _, d := range n.gpus {
		need, fits := p.takes(f, d)
		if !fits {
			continue
		}
		lack, late, hard := p.shortage(d, need)
		lack, late = lack+hostLack, late+hostLate
		s.gpu, s.price, s.lack, s.late, s.free = d, p.w.facts[d].price, lack, late, p.free[d]
		s.class = p.luck(p.ease(classOf(lack, late, hard || hostHard)), f, n.host, d)
		add(s)
	}
}

// setSpot offers the GPUs of a node that are closest to having room.
func (p *plan) setSpot(f *Function, k int32, add func(*spot)) {
	gpus := p.set(f, k)
	if gpus == nil {
		return
	}
	n := &p.w.nodes[k]
	s := spot{node: k, gpu: -1, fetch: p.fetches(f, n)}
	var anyHard bool
	at := []int32{n.host}
	s.lack, s.late, anyHard = p.shortage(n.host, f.needOn(k).Host)
	for _, g := range gpus {
		s.lack, s.late, s.free, s.price = s.lack+g.lack, s.late+g.late, s.free+g.free, s.price+g.price
		anyHard = anyHard || g.class%afterAll == 3
		at = append(at, g.gpu)
	}
	s.class = p.luck(p.ease(classOf(s.lack, s.late, anyHard)), f, at...)
	p.spot = s
	add(&p.spot)
}

// set chooses as many GPUs of a node as f needs; nil if it has too few.
func (p *plan) set(f *Function, k int32) []spot {
	n := &p.w.nodes[k]
	if len(n.gpus) < f.Need.Devices {
		return nil
	}
	fit := make([]spot, 0, 16)
	for _, d := range n.gpus {
		if need, fits := p.takes(f, d); fits {
			lack, late, hard := p.shortage(d, need)
			fit = append(fit, spot{gpu: d, class: p.luck(classOf(lack, late, hard), f, n.host, d), price: p.w.facts[d].price, late: late, lack: lack, free: p.free[d]})
		}
	}
	if len(fit) < f.Need.Devices {
		return nil
	}
	slices.SortStableFunc(fit, func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.class/afterAll, b.class/afterAll), cmp.Compare(a.late, b.late), cmp.Compare(a.lack, b.lack), cmp.Compare(a.price, b.price), cmp.Compare(a.free, b.free))
	})
	return fit[:f.Need.Devices]
}

// devicesOf lists the devices of a place, the host first.
func (p *plan) devicesOf(f *Function, s spot) []int32 {
	at := make([]int32, 1, 1+f.Need.Devices)
	at[0] = p.w.nodes[s.node].host
	switch {
	case s.gpu >= 0:
		at = append(at, s.gpu)
	case f.Need.Devices > 1:
		for _, g := range p.set(f, s.node) {
			at = append(at, g.gpu)
		}
		slices.Sort(at[1:])
	}
	return at
}
