package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// NodeToCome is the node of an instance whose pod waits for a node to be added.
const NodeToCome = "a-node-to-come"

func (i *Instance) unplaced() bool { return len(i.Status.Candidates) > 0 && i.Status.Unplaced() }

// placePods makes room for the requests of pods that no node has room for, by priority and waiting. Devices' memory was
// booked with the demand.
//
//  1. its function no longer needs it: nothing
//  2. a sleeper of its function can be woken instead
//  3. a node has what it requests, or gets it back from deleted pods
//  4. sleepers' pods give up what they can spare; then sleepers go, and idle instances sleep or
//     go, on the node with the least loss
//  5. nothing can go now: it waits
//
// Rising sleepers that want back what they gave up come first: the scheduler counts that already. Pods of others come
// last, and only sleepers go for them.
func (p *plan) placePods() {
	var fs []*function
	for _, f := range p.fs {
		if !f.Undeclared && slices.ContainsFunc(f.Instances, (*Instance).unplaced) {
			fs = append(fs, f)
		}
	}
	if len(fs)+len(p.s.Unmanaged) == 0 {
		return
	}
	slices.SortFunc(fs, func(a, b *function) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.WaitingSince.Compare(b.WaitingSince), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
	q := &podQueue{plan: p, rooms: make(map[string]api.Requests, len(p.s.Rooms))}
	for _, r := range p.s.Rooms {
		q.rooms[r.Node] = r.Free.Plus(r.Leaving).Plus(q.departing(r.Node))
	}
	q.place(fs)
}

type podQueue struct {
	*plan
	rooms map[string]api.Requests // left on each node, with what is coming
}

func (q *podQueue) place(fs []*function) {
	for _, s := range q.s.Unmanaged {
		if f := q.function(s.Function); f != nil {
			q.wakeInstead(f)
			q.placePod(pendingPod{f, s.Name, s.Requests, s.Candidates})
		}
	}
	for _, f := range fs {
		needed := f.desired - f.awake - q.wakeInstead(f)
		for _, i := range f.instances {
			if !i.unplaced() || i.phase != phaseRising || i.Doing == DoingStop {
				continue
			}
			if needed--; needed >= 0 { // 1
				q.placePod(pendingPod{i.f, string(i.Status.Instance), i.Status.Requests, i.Status.Candidates})
			}
		}
	}
	for _, s := range q.s.Unmanaged {
		if s.Function == "" {
			q.placePod(pendingPod{nil, s.Name, s.Requests, s.Candidates})
		}
	}
}

func (l *ledger) function(name api.FunctionName) *function {
	k, found := slices.BinarySearchFunc(l.fs, name, func(f *function, n api.FunctionName) int { return cmp.Compare(f.Spec.Name, n) })
	if !found {
		return nil
	}
	return l.fs[k]
}

// wakeInstead wakes sleepers of f instead of instances whose pods fit on no node. It returns how many are on their way
// up.
func (q *podQueue) wakeInstead(f *function) (n int) {
	stuck := 0
	for _, s := range q.s.Unmanaged {
		stuck += btoi(s.Function == f.Spec.Name)
	}
	for _, i := range f.instances {
		stuck += btoi(i.unplaced() && i.phase == phaseRising)
	}
	n = f.rising - stuck
	for _, i := range f.instances {
		if f.awake+n >= f.desired || f.desired > f.live() { // else it demands one by all possible ways
			break
		}
		if i.phase != phaseAsleep || i.lost || i.Status.Shrunk || !q.available(i) {
			continue
		}
		if o := q.waking(i); o.fits(q.free, nil) {
			q.bringUp(&demand{f: f, why: "another of its pods finds no room"}, &o)
			n++
		}
	}
	return n
}

// pendingPod fits on no node.
type pendingPod struct {
	f     *function // nil: it is another's
	name  string
	need  api.Requests
	nodes []string
}

// departing returns the requests that are being freed and not in the node's room yet.
func (q *podQueue) departing(node string) (sum api.Requests) {
	for _, i := range q.instancesOn(node) {
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

func (q *podQueue) instancesOn(node string) []*instance {
	k, found := q.named[node]
	if !found {
		return nil
	}
	is := slices.Clone(q.on[q.nodes[k].host])
	slices.SortFunc(is, func(a, b *instance) int { return cmp.Compare(a.Status.Instance, b.Status.Instance) })
	return is
}

type preemption struct {
	node   string
	yields []preemptible
	idlers int     // awake ones of yields
	loss   float64 // in seconds
}

type preemptible struct {
	*instance
	shrinks bool // it stays, asleep, with smaller requests
	idle    bool // it is awake
	gives   api.Requests
	loss    float64 // in seconds
}

// rank orders ways, the least costly first: deleting a pod takes half a minute, starting another usually longer.
func (y preemptible) rank() int { return 2*btoi(!y.shrinks) + btoi(y.idle) }

func (q *podQueue) placePod(pod pendingPod) {
	need := pod.need
	var best *preemption
	var lack api.Requests
	for _, node := range pod.nodes {
		room, known := q.rooms[node]
		if !known {
			continue
		}
		without := room.Lack(need)
		if without == nil { // 3
			q.rooms[node] = room.Minus(need)
			return
		}
		if lack == nil {
			lack = without
		}
		if s := q.preemptOn(pod, node, room); s != nil && (best == nil || cmp.Or(cmp.Compare(s.idlers, best.idlers), cmp.Compare(s.loss, best.loss)) < 0) {
			best = s
		}
	}
	if best == nil { // 5
		if pod.f != nil && lack != nil { // else the nodes' rooms are not known yet
			q.wait(pod.f, fmt.Sprintf("no node has room for the pod %s, which requests %s; it lacks %s, and nobody can go now", pod.name, need, lack))
		}
		return
	}
	lack = q.rooms[best.node].Lack(need)
	q.rooms[best.node] = q.rooms[best.node].Minus(need)
	for _, v := range best.yields {
		q.rooms[best.node] = q.rooms[best.node].Plus(v.gives)
	}
	q.preempt(pod, best, lack) // 4
}

func (q *podQueue) preempt(pod pendingPod, by *preemption, lack api.Requests) {
	gainer, name := "somebody else", api.FunctionName("")
	if pod.f != nil {
		name = pod.f.Spec.Name
		gainer = string(name)
	}
	for _, v := range by.yields {
		i := v.instance
		reason := fmt.Sprintf("makes room for %s, whose pod %s finds no room and lacks %s on %s", gainer, pod.name, lack, by.node)
		since := "asleep for " + short(q.now.Sub(i.Since))
		if i.phase != phaseAsleep {
			since = "idle for " + short(q.now.Sub(q.usedUntil(i, 1)))
		}
		if v.shrinks {
			since += fmt.Sprintf(", gives up %s of what its pod requests", v.gives)
		}
		var a *Action
		switch {
		case i.phase == phaseAsleep && i.reserved(): // it goes once the grant is revoked
			a = q.revoke(i, reason)
		case v.shrinks && v.idle:
			a = q.sleep(i, i.f.level(), since+"; "+reason)
			a.Shrink = true
		case v.shrinks:
			a = q.addAction(i.f, i, Action{Kind: Sleep, Level: i.Status.Level, Shrink: true, Reason: since + "; " + reason})
		case i.phase == phaseAsleep:
			a = q.stop(i, 0, since+"; "+reason)
		default:
			a = q.stop(i, q.pol.Drain, since+"; "+reason)
		}
		a.For = name
	}
}

// growTime is about how long a pod takes to get back its requests.
const growTime = time.Second

// preemptibles lists the ways to make room on a node: shrinking before deleting, sleepers before awake instances, the
// lower priority first, then the least loss.
func (q *podQueue) preemptibles(pod pendingPod, node string) (ys []preemptible) {
	for _, v := range q.instancesOn(node) {
		if v.f == pod.f || pod.f == nil && v.phase != phaseAsleep || v.taken || v.f.Undeclared || v.unplaced() || len(v.Status.Requests) == 0 || !q.dispensable(v) {
			continue
		}
		wanted := q.untilWanted(v)
		idle, back := v.phase == phaseAwake, growTime
		if idle {
			back += v.f.Past.Return(v.f.level())
		}
		if v.Status.Spare != nil {
			ys = append(ys, preemptible{v, true, idle, v.Status.Spare, back.Seconds() / wanted})
		}
		ys = append(ys, preemptible{v, false, idle, v.Status.Requests, v.f.Past.Return(inventory.Stopped).Seconds() / wanted})
	}
	slices.SortStableFunc(ys, func(a, b preemptible) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(priority(a.instance), priority(b.instance)), cmp.Compare(a.loss, b.loss))
	})
	return ys
}

// preemptOn returns nil if everything is not enough.
func (q *podQueue) preemptOn(pod pendingPod, node string, room api.Requests) *preemption {
	s := &preemption{node: node}
	shrunk := make(map[*instance]bool)
	lack := room.Lack(pod.need)
	for _, y := range q.preemptibles(pod, node) {
		if lack == nil {
			break
		}
		if shrunk[y.instance] { // deleting it instead gives the rest
			y.gives = y.gives.Minus(y.Status.Spare)
		}
		if !maps.Equal(y.gives.Lack(lack), lack) {
			shrunk[y.instance] = y.shrinks
			s.yields = append(s.yields, y)
			room = room.Plus(y.gives)
			lack = room.Lack(pod.need)
		}
	}
	if lack != nil {
		return nil
	}
	for k := len(s.yields) - 1; k >= 0; k-- { // the most costly first
		if less := room.Minus(s.yields[k].gives); less.Lack(pod.need) == nil {
			room, s.yields = less, slices.Delete(s.yields, k, k+1)
		}
	}
	whole := make(map[*instance]bool) // a pod that is deleted need not shrink
	for _, y := range s.yields {
		whole[y.instance] = whole[y.instance] || !y.shrinks
	}
	s.yields = slices.DeleteFunc(s.yields, func(y preemptible) bool { return y.shrinks && whole[y.instance] })
	for k := range s.yields {
		if y := &s.yields[k]; !y.shrinks {
			y.gives = y.Status.Requests
		}
		s.idlers += btoi(s.yields[k].idle)
		s.loss += s.yields[k].loss
	}
	return s
}

func (q *podQueue) dispensable(v *instance) bool {
	switch {
	case !q.available(v):
		return false
	case v.phase == phaseAsleep:
		return !q.aboutToWake(v.f, v)
	case v.phase == phaseAwake:
		return v.f.live() > v.f.desired && !v.f.busy() && q.due(q.usedUntil(v, v.f.awake).Add(q.pol.IdleGrace))
	}
	return false
}
