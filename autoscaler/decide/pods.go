package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// SetRooms replaces what pods may still request on each node, and the pods of others that fit on no node. It is needed while any pod fits on none.
func (w *World) SetRooms(rooms []inventory.Room, unmanaged []inventory.UnmanagedPod) {
	w.rooms, w.unmanaged = slices.Clone(rooms), slices.Clone(unmanaged)
}

// SetElastic sets whether nodes may be added: see [Snapshot.Elastic].
func (w *World) SetElastic(on bool) {
	if w.elastic != on {
		w.elastic = on
		for _, f := range w.fns {
			w.activate(f)
		}
	}
}

// startOnNodeToCome starts an instance that fits on no existing node: its pod waits for a node to be added.
func (p *plan) startOnNodeToCome(dm *demand, reason string) {
	p.do(dm.f, nil, Action{Kind: Start, Node: NodeToCome, Memory: dm.f.Need, Reason: fmt.Sprintf("%s; %s, and a node may be added", dm.why, reason)})
}

// NodeToCome is the node of such a start.
const NodeToCome = "a-node-to-come"

// notePending updates whether f has a pod that fits on no node.
func (w *World) notePending(f *Function) {
	if !f.Undeclared && slices.ContainsFunc(f.Instances, (*Instance).unplaced) {
		w.pending[f] = struct{}{}
	} else {
		delete(w.pending, f)
	}
}

// unplaced reports whether i is a pod that no node has taken.
func (i *Instance) unplaced() bool { return len(i.Status.Candidates) > 0 && i.Status.Unplaced() }

// placePods makes room for pods that the scheduler finds no node for, in the order of their functions' priority and waiting:
//
//  1. its function no longer needs it: nothing is done
//  2. a sleeper of its own function can be woken instead: that is done
//  3. a node has what it requests, or gets it back from pods that are being deleted: it waits for that
//  4. sleepers' pods give up what they can spare; then sleepers go, and idle instances sleep or go, on the node with the least loss
//  5. nothing can go now: it waits
//
// Rising sleepers that want back what they gave up come first: the scheduler counts that already. Pods of others come last, and only sleepers go for them.
// All this concerns pods' requests; devices' memory was booked with the demand.
func (p *plan) placePods() {
	if len(p.w.pending)+len(p.w.unmanaged) == 0 {
		return
	}
	var fs []*Function
	for f := range p.w.pending {
		fs = append(fs, f)
	}
	slices.SortFunc(fs, func(a, b *Function) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.WaitingSince.Compare(b.WaitingSince), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
	rooms := make(map[string]api.Requests, len(p.w.rooms)) // free and coming requests
	for _, r := range p.w.rooms {
		rooms[r.Node] = r.Free.Plus(r.Leaving).Plus(p.departing(r.Node))
	}
	for _, s := range p.w.unmanaged {
		if f := p.w.fns[s.Function]; f != nil {
			p.wakeInstead(f)
			p.placePod(pendingPod{f, s.Name, s.Requests, s.Candidates}, rooms)
		}
	}
	for _, f := range fs {
		needed := f.desired - f.awake - p.wakeInstead(f)
		for _, i := range f.Instances {
			if !i.unplaced() || i.phase != phaseRising || i.Doing == DoingStop {
				continue
			}
			if needed--; needed >= 0 { // 1
				p.placePod(pendingPod{i.f, string(i.Status.Instance), i.Status.Requests, i.Status.Candidates}, rooms)
			}
		}
	}
	for _, s := range p.w.unmanaged {
		if s.Function == "" {
			p.placePod(pendingPod{nil, s.Name, s.Requests, s.Candidates}, rooms)
		}
	}
}

// wakeInstead wakes sleepers of f whose pods have all their requests, instead of instances whose pods fit on no node, if there is memory for that now. It
// returns how many are on their way up.
func (p *plan) wakeInstead(f *Function) (n int) {
	stuck := 0
	for _, s := range p.w.unmanaged {
		stuck += btoi(s.Function == f.Spec.Name)
	}
	for _, i := range f.Instances {
		stuck += btoi(i.unplaced() && i.phase == phaseRising)
	}
	n = f.rising - stuck
	for _, i := range f.Instances {
		if f.awake+n >= f.desired || f.desired > f.live() { // else it demands one by all possible ways
			break
		}
		if i.phase != phaseAsleep || i.lost || i.Status.Shrunk || !p.available(i) {
			continue
		}
		if o := p.waking(i); o.fits(p.free, nil) {
			p.follow(&demand{f: f, why: "another of its pods finds no room"}, o)
			n++
		}
	}
	return n
}

// pendingPod is a pod that fits on no node; f is nil if it is not a function's.
type pendingPod struct {
	f     *Function
	name  string
	need  api.Requests
	nodes []string
}

// departing returns what comes free on a node and is not in its room yet: requests of instances being stopped, what sleepers are giving up, and either of an
// instance whose grant is being revoked, since it goes after that.
func (p *plan) departing(node string) (sum api.Requests) {
	for _, i := range p.on(node) {
		switch {
		case i.unplaced():
		case i.phase == phaseLeaving, i.phase == phaseAsleep && i.Doing == DoingRevoke && i.Status.Spare == nil:
			sum = sum.Plus(i.Status.Requests)
		case i.Doing == DoingSleep, i.phase == phaseAsleep && i.Doing == DoingRevoke:
			sum = sum.Plus(i.Status.Spare)
		}
	}
	return sum
}

// on lists the instances on a node, by ID.
func (p *plan) on(node string) []*Instance {
	k, found := p.w.named[node]
	if !found {
		return nil
	}
	is := slices.Clone(p.w.on[p.w.nodes[k].host])
	slices.SortFunc(is, func(a, b *Instance) int { return cmp.Compare(a.Status.Instance, b.Status.Instance) })
	return is
}

// preemption is a way to make room on a node.
type preemption struct {
	node   string
	yields []preemptible
	idlers int     // the number of awake ones among them
	regret float64 // in seconds
}

// preemptible is one way in which an instance can make room: its pod shrinks, or is deleted.
type preemptible struct {
	*Instance
	shrinks bool // it stays, asleep, with smaller requests
	idle    bool // it is awake
	gives   api.Requests
	regret  float64 // in seconds
}

// rank orders ways, the least costly first: deleting a pod takes half a minute, and starting another usually longer.
func (y preemptible) rank() int { return 2*btoi(!y.shrinks) + btoi(y.idle) }

// placePod finds a node for a pod, makes room there, and books it in rooms, which has what nodes have left.
func (p *plan) placePod(pod pendingPod, rooms map[string]api.Requests) {
	need := pod.need
	var best *preemption
	var lack api.Requests
	for _, node := range pod.nodes {
		room, known := rooms[node]
		if !known {
			continue
		}
		without := room.Lack(need)
		if without == nil { // 3
			rooms[node] = room.Minus(need)
			return
		}
		if lack == nil {
			lack = without
		}
		if s := p.preemptOn(pod, node, room); s != nil && (best == nil || cmp.Or(cmp.Compare(s.idlers, best.idlers), cmp.Compare(s.regret, best.regret)) < 0) {
			best = s
		}
	}
	if best == nil { // 5
		if pod.f != nil && lack != nil { // else the nodes' rooms are not known yet
			p.wait(&demand{f: pod.f}, fmt.Sprintf("no node has room for the pod %s, which requests %s; it lacks %s, and nobody can go now", pod.name, need, lack))
		}
		return
	}
	lack = rooms[best.node].Lack(need)
	rooms[best.node] = rooms[best.node].Minus(need)
	for _, v := range best.yields {
		rooms[best.node] = rooms[best.node].Plus(v.gives)
	}
	p.preempt(pod, best, lack) // 4
}

// preempt makes instances give way to a pod, which lacks lack on their node.
func (p *plan) preempt(pod pendingPod, by *preemption, lack api.Requests) {
	gainer := "somebody else"
	if pod.f != nil {
		gainer = string(pod.f.Spec.Name)
		p.gainer = pod.f.Spec.Name
		defer func() { p.gainer = "" }()
	}
	for _, v := range by.yields {
		reason := fmt.Sprintf("makes room for %s, whose pod %s finds no room and lacks %s on %s", gainer, pod.name, lack, by.node)
		switch {
		case v.phase == phaseAsleep && v.reserved(): // it goes once the grant is revoked
			p.withdraw(v.Instance, reason)
		case v.shrinks && v.idle:
			p.sleep(v.Instance, v.f.level(), fmt.Sprintf("idle for %s, gives up %s of what its pod requests; %s", short(p.now.Sub(p.usedUntil(v.Instance, 1))), v.gives, reason))
			p.actions[len(p.actions)-1].Shrink = true
		case v.shrinks:
			p.shrink(v.Instance, fmt.Sprintf("asleep for %s, gives up %s of what its pod requests; %s", short(p.now.Sub(v.Since)), v.gives, reason))
		case v.phase == phaseAsleep:
			p.stop(v.Instance, 0, fmt.Sprintf("asleep for %s; %s", short(p.now.Sub(v.Since)), reason))
		default:
			p.stop(v.Instance, p.pol.Drain, fmt.Sprintf("idle for %s; %s", short(p.now.Sub(p.usedUntil(v.Instance, 1))), reason))
		}
	}
}

// growTime is about how long a pod takes to get back what it gave up.
const growTime = time.Second

// preemptibles lists the ways to make room for a pod on a node, in order: shrinking before deleting, sleepers before awake instances, the lower priority
// first, then the least regret.
func (p *plan) preemptibles(pod pendingPod, node string) (ys []preemptible) {
	for _, v := range p.on(node) {
		if v.f == pod.f || pod.f == nil && v.phase != phaseAsleep || v.taken || v.f.Undeclared || v.unplaced() || len(v.Status.Requests) == 0 || !p.dispensable(v) {
			continue
		}
		wanted := p.untilWanted(v)
		idle, back := v.phase == phaseAwake, growTime
		if idle {
			back += v.past().Return(v.f.level())
		}
		if v.Status.Spare != nil {
			ys = append(ys, preemptible{v, true, idle, v.Status.Spare, wanted.over(back).v})
		}
		ys = append(ys, preemptible{v, false, idle, v.Status.Requests, wanted.over(v.past().Return(inventory.Stopped)).v})
	}
	slices.SortStableFunc(ys, func(a, b preemptible) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(priority(a.Instance), priority(b.Instance)), cmp.Compare(a.regret, b.regret))
	})
	return ys
}

// preemptOn chooses what makes room for a pod on a node; nil if everything together is not enough.
func (p *plan) preemptOn(pod pendingPod, node string, room api.Requests) *preemption {
	s := &preemption{node: node}
	shrunk := make(map[*Instance]bool)
	lack := room.Lack(pod.need)
	for _, y := range p.preemptibles(pod, node) {
		if lack == nil {
			break
		}
		if shrunk[y.Instance] { // deleting it instead gives the rest
			y.gives = y.gives.Minus(y.Status.Spare)
		}
		if y.gives.Meets(lack) {
			shrunk[y.Instance] = y.shrinks
			s.yields = append(s.yields, y)
			room = room.Plus(y.gives)
			lack = room.Lack(pod.need)
		}
	}
	if lack != nil {
		return nil
	}
	for k := len(s.yields) - 1; k >= 0; k-- { // drop what is not needed after all, the most costly first
		if less := room.Minus(s.yields[k].gives); less.Lack(pod.need) == nil {
			room, s.yields = less, slices.Delete(s.yields, k, k+1)
		}
	}
	whole := make(map[*Instance]bool) // a pod that is deleted need not shrink
	for _, y := range s.yields {
		whole[y.Instance] = whole[y.Instance] || !y.shrinks
	}
	s.yields = slices.DeleteFunc(s.yields, func(y preemptible) bool { return y.shrinks && whole[y.Instance] })
	for k := range s.yields {
		if y := &s.yields[k]; !y.shrinks {
			y.gives = y.Status.Requests
		}
		s.idlers += btoi(s.yields[k].idle)
		s.regret += s.yields[k].regret
	}
	return s
}

// shrink lowers the requests of a sleeper's pod. The instance keeps its devices' memory.
func (p *plan) shrink(i *Instance, reason string) {
	p.do(i.f, i, Action{Kind: Sleep, Level: i.Status.Level, Shrink: true, For: p.gainer, Reason: reason})
}

// dispensable reports whether v may end for another pod now: a sleeper that is not about to be woken, or an awake instance that is idle and was given a
// moment for its client's next request.
func (p *plan) dispensable(v *Instance) bool {
	switch {
	case !p.available(v):
		return false
	case v.phase == phaseAsleep:
		return !p.promised(v.f, v)
	case v.phase == phaseAwake:
		return v.f.live() > v.f.desired && !v.f.busy() && p.due(v.f, p.usedUntil(v, v.f.awake).Add(p.pol.IdleGrace))
	}
	return false
}
