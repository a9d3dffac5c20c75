package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func (q *queue) serveDemand(dm *demand) {
	if dm.f.refused || dm.f.gives {
		return
	}
	if dm.class == ahead {
		q.serveAhead(dm)
		return
	}
	if why := q.chooseVariant(dm); why != "" {
		q.wait(dm, why)
		return
	}
	f := dm.f
	// 1. It failed recently, or its namespace's quota is full: not yet.
	if api.QuotaFull(f.LastError) && q.freeQuota(dm) || !q.due(f.RetryAt) {
		q.wait(dm, fmt.Sprintf("the last try failed: %s; the next is at %s", f.LastError, f.RetryAt.Format("15:04:05.000")))
		return
	}
	// 2. It never fits.
	if reason, err := q.impossible(f.Function, q.pol.Advice); err != nil {
		if q.s.Elastic {
			q.addAction(f, nil, Action{Kind: Start, Node: NodeToCome, Memory: f.Need, Reason: fmt.Sprintf("%s; %s, and a node may be added", dm.why, reason)})
		} else if f.asking() {
			q.fail(f, err, reason)
		} else {
			q.wait(dm, reason)
		}
		return
	}
	// 3. Its own instance is going to sleep or changing its grant: cancel that, or wake it later.
	o := q.best(dm)
	if o == nil || o.self == nil && f.falling+f.passing > 0 {
		if !q.cancelSleep(dm) {
			q.explainWait(dm)
		}
		return
	}
	// 4. The best way.
	q.carryOut(dm, o)
}

// freeQuota stops the longest sleeper in the namespace of dm's function or, if there is none, for a first instance the
// longest idle one, once for each failure: its pod counts in the quota. It reports whether one is being stopped.
func (p *plan) freeQuota(dm *demand) (going bool) {
	var v *instance
	var since time.Time
	for _, f := range p.fs {
		if f == dm.f || f.Spec.Name.Namespace() != dm.f.Spec.Name.Namespace() {
			continue
		}
		n := f.live()
		for _, i := range slices.Backward(f.instances) { // the newest goes first
			used, may := i.Since, i.phase == phaseAsleep && !p.aboutToWake(f, i)
			if i.phase == phaseAwake {
				used, may = p.usedUntil(i, n), dm.class == first && !f.busy() && n > f.desired && p.due(p.search.readyAt(nil, i, idle, f.live()-n+1))
				n--
			}
			going = going || i.phase == phaseLeaving
			if may && p.available(i) && (v == nil || cmp.Or(btoi(i.phase != phaseAsleep)-btoi(v.phase != phaseAsleep), used.Compare(since)) < 0) {
				v, since = i, used
			}
		}
	}
	if going || v == nil || p.due(dm.f.RetryAt) {
		return going
	}
	p.stop(v, p.pol.Drain, "makes room in the quota of its namespace for "+string(dm.f.Spec.Name))
	return true
}

func (q *queue) cancelSleep(dm *demand) bool {
	for _, i := range dm.f.instances {
		if i.Returns && i.Doing == DoingSleep && (i.Status.State == api.Draining || i.Status.State == api.Awake) && !i.taken {
			q.addAction(dm.f, i, Action{Kind: Keep, Reason: dm.why + ": it need not sleep"})
			return true
		}
	}
	return false
}

func (q *queue) explainWait(dm *demand) {
	if dm.f.passing > 0 {
		return // a matter of microseconds
	}
	if dm.f.falling > 0 {
		q.wait(dm, "its own instance is on its way to sleep and is woken after that")
		return
	}
	need := dm.f.Need
	if pinned := q.pinnedBeside(dm.f); pinned > 0 && need.Host > q.largest-pinned && dm.f.Certain && dm.f.asking() {
		q.fail(dm.f, noCapacity("%s needs %s of host memory for one instance; of %s, functions with min-scale keep %s: %s, or lower min-scale or rouse.dev/memory",
			dm.f.Spec.Name, need.Host, q.largest, pinned, q.pol.Advice.Memory),
			fmt.Sprintf("needs %s, %s of %s are kept by min-scale", need.Host, pinned, q.largest))
		return
	}
	n := q.roomiest()
	q.bookAhead(dm, amounts{[]int32{n.host}, bytes{need.Host}})
	at := []int32{n.host}
	if need.Devices > 0 {
		at = append(at, n.gpus...)
	}
	where := ""
	if len(q.nodes) > 1 {
		where = " on " + n.name
	}
	q.wait(dm, fmt.Sprintf("needs %s, free %s%s and nothing can make room now", amountOf(need), q.formatFree(at), where))
}

// pinnedBeside returns what min-scale keeps for other functions, of the only node.
func (q *queue) pinnedBeside(f *function) (sum api.Bytes) {
	if len(q.nodes) > 1 {
		return 0
	}
	for _, g := range q.fs {
		if g != f {
			sum += g.pinned()
		}
	}
	return sum
}

func (q *queue) wait(dm *demand, reason string) {
	if dm.class != ahead { // no request waits for a predicted demand
		q.plan.wait(dm.f, reason)
	}
}

func (q *queue) carryOut(dm *demand, o *option) {
	if o.self != nil {
		o.self.taken = true
	}
	// 1. Victims that are not ready: wait.
	if !q.due(o.ready) {
		lack := q.formatLack(o)
		for k := range o.victims {
			o.victims[k].i.wanted = true
		}
		q.bookAhead(dm, amounts{o.at, o.needs})
		q.wait(dm, fmt.Sprintf("lacks %s; %s makes room at %s", lack, o.victims[len(o.victims)-1].i.Status.Instance, o.ready.Format("15:04:05.000")))
		return
	}
	// 2. Victims, or coming memory: book it for this demand.
	if len(o.victims) > 0 || !o.fits(q.free, nil) {
		lack, leavers := q.formatLack(o), q.formatLeavers(o)
		for k := range o.victims {
			q.evict(dm, &o.victims[k], lack)
		}
		q.book(amounts{o.at, o.needs})
		q.wait(dm, fmt.Sprintf("lacks %s; waits for %s", lack, leavers))
		return
	}
	// 3. There is room.
	q.bringUp(dm, o)
}

func (p *plan) bringUp(dm *demand, o *option) {
	f, free := dm.f, p.formatFree(o.at)
	var gpus []api.DeviceID
	for k, d := range o.at {
		own := api.Bytes(0)
		if o.own != nil {
			own = o.own[k]
		}
		p.spend(d, -o.needs[k], -own)
		if k > 0 {
			gpus = append(gpus, p.devs[d].ID)
		}
	}
	if o.self == nil {
		slices.Sort(gpus)
		need := f.needOn(o.node)
		p.addAction(f, nil, Action{Kind: Start, Node: p.nodes[o.node].name, Devices: gpus, Memory: f.Need, Ahead: dm.class == ahead,
			Reason: fmt.Sprintf("%s; needs %s%s, free %s%s", dm.why, amountOf(need), inMemoryThere(f.Need.Host-need.Host), free, p.snapshotOf(f))})
		return
	}
	p.addAction(f, o.self, Action{Kind: Wake, Devices: p.namesOf(o.self, o.at), Memory: f.Need, Ahead: dm.class == ahead && !dm.rehearsal, Rehearsal: dm.rehearsal,
		Reason: fmt.Sprintf("%s; asleep at level %d, back in about %s; needs %s more%s, free %s", dm.why,
			o.self.Status.Level, short(f.Past.Return(o.self.Status.Level)), p.formatAmounts(o.at, o.needs), inMemoryThere(o.self.spared), free)})
}

// bookAhead books at once for a demand that has starved for a turn, lest smaller ones overtake it for ever; else after
// first instances that fit.
func (q *queue) bookAhead(dm *demand, needs amounts) {
	q.planAt(dm.f.starved.Add(patience * q.pol.TurnWait)) // its place in the order changes then
	switch {
	case dm.class != first:
	case q.due(dm.f.starved.Add(q.pol.TurnWait)):
		q.book(needs)
	default:
		q.deferred = append(q.deferred, needs)
	}
}
