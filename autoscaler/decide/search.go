package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide/internal/memo"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Connects plans to package memo, which keeps search results between plans. Its cells are the nodes. A node's fingerprint covers everything
// that a search and the later stages of a plan read there:
//
//  1. each device and its account, including the current plan's bookings ([World.account])
//  2. each instance ([visible]), and whether the current plan has dealt with one of its function ([World.deal])
//
// What a search reads beside the nodes, of its demand and its function, is in its version ([searchVersion]).

// searches keeps search results.
type searches = memo.Memo[searchKey, searchVersion, spot, *option]

// newSearches forgets all results, and makes all nodes dirty.
func (w *World) newSearches() {
	n := len(w.nodes)
	most := 2 * mostSpots // so that a list lasts for a while
	if !w.large() {
		most = 0
	}
	w.searches = memo.New[searchKey, searchVersion, spot, *option](n, memo.Places[spot]{
		Compare: (*spot).compare,
		Cell:    func(s *spot) int32 { return s.node },
		Most:    most,
	})
	w.limitsWatch, w.grantsWatch = memo.NewWatch(n), memo.NewWatch(n)
	for d := range w.devs {
		w.searches.Add(w.of[d], memo.Hash(w.devs[d])+w.accountHash(int32(d)))
	}
}

// searchKey identifies a search: the nth demand of a function, and the function to get an instance of, which may be another variant.
type searchKey struct {
	of  *Function
	nth int
	f   *Function
}

// searchVersion is what a search reads beside the nodes.
type searchVersion struct {
	edition  uint64 // of the function
	class    class
	starved  time.Time // of a first instance, which may interrupt work
	sleepers int       // the number of sleepers that may be woken now
}

// search is one search; see [memo.Question].
type search struct {
	p        *plan
	dm       *demand
	sleepers []*Instance
}

// best returns the best option for dm, nil if there is none. It may have to wait: for coming memory, or until its victims are ready.
func (p *plan) best(dm *demand) *option {
	s := &search{p: p, dm: dm}
	for _, i := range dm.f.Instances {
		if i.phase == phaseAsleep && !i.lost && p.available(i) && (!dm.f.Bound || i.Status.Instance == dm.f.Prefers) {
			s.sleepers = append(s.sleepers, i)
		}
	}
	version := searchVersion{edition: dm.f.edition, class: dm.class, sleepers: len(s.sleepers)}
	if dm.class == first {
		version.starved = dm.f.starved
	}
	return p.w.searches.Find(searchKey{dm.of, dm.nth, dm.f}, version, p.now, s)
}

// Search implements [memo.Question].
func (s *search) Search() *option {
	for _, i := range s.dm.f.Instances {
		s.p.reads(i.at)
	}
	return s.p.find(s.dm, s.sleepers)
}

// Offer implements [memo.Question].
func (s *search) Offer(node int32, add func(*spot)) { s.p.spotsOf(s.dm.f, node, add) }

// Shown implements [memo.Question]: one place if there is room or soon is, else those where room can be made.
func (s *search) Shown(spots []spot) int {
	switch {
	case len(spots) > 0 && spots[0].class <= 1:
		return 1
	case s.p.w.large():
		return min(mostSpots, len(spots))
	}
	return len(spots)
}

// places lists the places of a new instance for the current search, the best first.
func (p *plan) places() []spot { return p.w.searches.Best() }

// reads records that the current search looks at devices.
func (p *plan) reads(at []int32) {
	if len(at) > 0 {
		p.w.searches.Read(p.w.of[at[0]])
	}
}

// holdsUntil records that the result of the current search may change at t.
func (p *plan) holdsUntil(t time.Time) { p.w.searches.HoldsUntil(t) }

// uncacheable records that the result of the current search may change at any time.
func (p *plan) uncacheable() { p.w.searches.Uncacheable() }

// account changes the account of a device.
func (w *World) account(d int32, free, coming, soft api.Bytes) {
	w.searches.Remove(w.of[d], w.accountHash(d))
	w.free[d] += free
	w.coming[d] += coming
	w.soft[d] += soft
	w.searches.Add(w.of[d], w.accountHash(d))
}

func (w *World) accountHash(d int32) uint64 {
	return memo.Hash([...]api.Bytes{api.Bytes(d), w.free[d], w.coming[d], w.soft[d]})
}

// setDevice replaces a device.
func (w *World) setDevice(d int32, device inventory.Device) {
	w.searches.Remove(w.of[d], memo.Hash(w.devs[d]))
	w.devs[d], w.facts[d] = device, factsOf(device)
	w.searches.Add(w.of[d], memo.Hash(w.devs[d]))
}

// dirty lists the nodes that have changed since a stage last looked at them, and counts as that stage's look.
func (w *World) dirty(stage *memo.Watch) []int32 { return stage.Dirty(&w.searches.Cells) }

// markChanged has a stage look again, in the next plan, at nodes that have changed since it began.
func (w *World) markChanged(stage *memo.Watch) { stage.MarkChanged(&w.searches.Cells) }

// markNode has all stages look again at the node of i.
func (w *World) markNode(i *Instance) {
	if len(i.at) > 0 {
		w.limitsWatch.Mark(i.node)
		w.grantsWatch.Mark(i.node)
	}
}

// deal adds to the fingerprints that the current plan has dealt with i, or removes that. It matters on every node where i's function has an
// instance.
func (w *World) deal(i *Instance, dealt bool) {
	change := w.searches.Add
	if !dealt {
		change = w.searches.Remove
	}
	for _, j := range i.f.Instances {
		if len(j.at) > 0 {
			change(j.node, memo.Hash(i))
		}
	}
}

// visible is what searches for others read of an instance: whether and when it may give way, and what is lost by it.
type visible struct {
	of                    uint64    // hash of its function's part
	devices               uint64    // hash of its devices
	self                  *Instance // kept results refer to it
	id                    api.InstanceID
	phase                 phase
	doing                 Doing
	state                 api.State
	level                 api.Level
	reserved, settling    bool
	lost, shrunk, slept   bool
	since, retry, settles time.Time
	failures              int
	memory                api.Memory
	borne, common, spared api.Bytes
}

// visibleFunction is what searches for others read of a function. It leaves out requests that come and go while it works.
type visibleFunction struct {
	declared, busy, wanted, frozen, dual bool
	live, desired, awake, ill            int
	priority, minScale                   int
	sleepLevel                           api.Level
	need                                 api.Memory
	load, sleep, firstSleep              time.Duration
	wake                                 [inventory.Stopped]time.Duration
	asleep                               [inventory.Stopped]api.Memory
	arrivals                             uint64 // hash
	lastRequest                          time.Time
	foreseen, foreseenUntil              time.Time // the window of a trusted rhythm
	needed                               uint64    // hash of the times when it was needed
}

// fingerprint adds f's instances to the fingerprints of their nodes.
func (w *World) fingerprint(f *Function, now time.Time) {
	past := &f.Past
	front := visibleFunction{
		declared: !f.Undeclared, busy: f.busy(), wanted: f.Waiting == 0 || f.live() > 0, frozen: f.frozen(), dual: f.Spec.DualPods,
		live: f.live(), desired: f.desired, awake: f.awake, ill: f.ill,
		priority: f.Spec.Priority, minScale: f.Spec.MinScale, sleepLevel: f.level(),
		need: f.Need, load: past.Load, sleep: past.Sleep, firstSleep: past.FirstSleep, wake: past.Wake, asleep: past.Asleep,
	}
	if w, made := f.Rhythm.Made(); made && f.foresees() {
		front.foreseen, front.foreseenUntil = w.From, w.Until
	}
	if !past.Arrivals.At.IsZero() { // costly to hash
		front.arrivals = memo.Hash(past.Arrivals)
	}
	needed := 0 // how many entries of NeededAt matter
	if f.asleep > 0 || !f.busy() {
		front.lastRequest, needed = f.LastRequest, 1
	}
	if f.ill > 0 || f.live() > f.desired {
		needed = f.live()
	}
	for n, t := range f.NeededAt[:min(needed, len(f.NeededAt))] {
		front.needed += memo.Hash([...]int64{int64(n), t.UnixNano()})
	}
	of := memo.Hash(front)
	for _, i := range f.Instances {
		if len(i.at) == 0 {
			continue
		}
		s := &i.Status
		o := visible{
			of: of, self: i, id: s.Instance, phase: i.phase, doing: i.Doing, state: s.State, level: s.Level,
			reserved: i.reserved(), settling: i.settling(now), lost: i.lost, shrunk: s.Shrunk, slept: i.Slept,
			since: i.Since, retry: i.RetryAt, settles: i.Settles, failures: i.Failures, memory: s.Memory, borne: i.Borne, common: i.common(), spared: i.spared,
		}
		for _, d := range i.at {
			o.devices += memo.Hash(d)
		}
		i.print = memo.Hash(o)
		w.searches.Add(i.node, i.print)
	}
}

// unfingerprint removes f's instances from the fingerprints.
func (w *World) unfingerprint(f *Function) {
	for _, i := range f.entered {
		if len(i.at) > 0 {
			w.searches.Remove(i.node, i.print)
		}
	}
}
