package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Plan returns what to do at now, and when to plan again even if nothing happens until then; a zero time means never. Plan does not block, and
// neither keeps nor changes anything of s.
//
// No action of Plan makes the memory that is awake, on its way or reserved exceed a device's capacity.
func Plan(s Snapshot, now time.Time) ([]Action, time.Time) {
	if len(s.Topology.devs) == 0 {
		return nil, time.Time{}
	}
	p := newPlan(&s, now)
	p.stopOverdue()   // 1
	p.followOrders()  // 2
	p.limitSleepers() // 3
	p.meetDemands()   // 4
	p.placePods()     // 5
	p.scaleDown()     // 6
	p.giveGrants()    // 7
	return p.actions, p.next
}

// plan is the working state of one call of Plan.
type plan struct {
	*ledger
	s       *Snapshot
	search  *search
	near    *neighbours // nil until it is needed
	pol     Policy
	actions []Action
}

func newPlan(s *Snapshot, now time.Time) *plan {
	p := &plan{ledger: newLedger(s.Topology, s.Functions, now), s: s, pol: s.Policy.WithDefaults()}
	p.search = &search{plan: p}
	for _, f := range p.fs {
		if f.starve(now); f.scaled {
			p.planAt(f.Scale.Until)
		}
		for _, i := range f.instances {
			i.key = p.needKey(i)
		}
	}
	return p
}

// addAction adds an action and returns it; i is nil if it concerns no instance. The pointer is valid until the next action.
func (p *plan) addAction(f *function, i *instance, a Action) *Action {
	a.Function = f.Spec.Name
	if i != nil {
		i.taken = true
		a.Instance = i.Status.Instance
		if a.Node == "" && !i.lost {
			a.Node = p.nodes[i.node].name
		}
	}
	p.actions = append(p.actions, a)
	return &p.actions[len(p.actions)-1]
}

// wait records that f has to wait, once.
func (p *plan) wait(f *function, reason string) {
	if !f.waits {
		f.waits = true
		p.addAction(f, nil, Action{Kind: Wait, Reason: reason})
	}
}

// stop ends an instance; running requests may take drain to finish.
func (p *plan) stop(i *instance, drain time.Duration, reason string) *Action {
	p.bookRelease(i, api.Memory{})
	return p.addAction(i.f, i, Action{Kind: Stop, Drain: drain, Reason: reason})
}

// sleep puts an instance to sleep, or a sleeping one deeper.
func (p *plan) sleep(i *instance, level api.Level, reason string) *Action {
	if i.phase == phaseAwake && level <= i.f.level() && p.suspends(i) {
		if _, yes := p.contested(i); yes {
			level = api.Suspended
		}
	}
	p.bookRelease(i, i.residue(level))
	if level == api.Suspended { // its place in host memory
		p.spend(i.at[0], -p.growth(i), 0)
	}
	return p.addAction(i.f, i, Action{Kind: Sleep, Level: level, Drain: p.pol.Drain, Reason: reason})
}

// revoke revokes i's grant.
func (p *plan) revoke(i *instance, reason string) *Action {
	i.grantChanged = true
	p.bookRelease(i, i.Status.Memory)
	return p.addAction(i.f, i, Action{Kind: Revoke, Reason: reason})
}

// fail refuses all requests that wait for f.
func (p *plan) fail(f *function, err *api.Error, reason string) {
	f.refused = true
	p.addAction(f, nil, Action{Kind: Fail, Err: err, Reason: reason})
}

// available reports whether i can be given something to do now.
func (p *plan) available(i *instance) bool {
	return !i.taken && i.Doing == Nothing && p.due(i.RetryAt)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
