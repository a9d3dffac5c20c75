package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Plan returns what to do at now, and when to plan again at the latest; a zero time means never. It neither keeps nor
// changes anything of s.
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

// addAction adds an action; i may be nil. The pointer is valid until the next action.
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

func (p *plan) wait(f *function, reason string) {
	if !f.waits {
		f.waits = true
		p.addAction(f, nil, Action{Kind: Wait, Reason: reason})
	}
}

func (p *plan) stop(i *instance, drain time.Duration, reason string) *Action {
	p.bookRelease(i, api.Memory{})
	return p.addAction(i.f, i, Action{Kind: Stop, Drain: drain, Reason: reason})
}

func (p *plan) sleep(i *instance, level api.Level, reason string) *Action {
	if i.phase == phaseAwake && level <= i.f.level() && p.suspends(i) {
		if _, yes := p.contested(i); yes {
			level = api.Suspended
		}
	}
	p.bookRelease(i, i.residue(level))
	if level == api.Suspended {
		p.spend(i.at[0], -p.growth(i), 0)
	}
	return p.addAction(i.f, i, Action{Kind: Sleep, Level: level, Drain: p.pol.Drain, Reason: reason})
}

func (p *plan) revoke(i *instance, reason string) *Action {
	i.grantChanged = true
	p.bookRelease(i, i.Status.Memory)
	return p.addAction(i.f, i, Action{Kind: Revoke, Reason: reason})
}

func (p *plan) fail(f *function, err *api.Error, reason string) {
	f.refused = true
	p.addAction(f, nil, Action{Kind: Fail, Err: err, Reason: reason})
}

func (p *plan) available(i *instance) bool {
	return !i.taken && i.Doing == Nothing && p.due(i.RetryAt)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// followOrders stops outdated instances and follows orders. An order to wake is a demand.
func (p *plan) followOrders() {
	for _, f := range p.fs {
		for _, i := range f.instances {
			if i.Outdated && p.available(i) { // booked as coming already
				p.addAction(f, i, Action{Kind: Stop, Drain: p.pol.Drain, Reason: "the function was declared anew since it started"})
			}
		}
	}
	for _, f := range p.fs {
		if f.Order != OrderSleep && f.Order != OrderStop {
			continue
		}
		for _, i := range f.instances {
			if !p.available(i) {
				continue
			}
			if f.Order == OrderStop {
				p.stop(i, p.pol.Drain, "asked for")
				continue
			}
			level := max(f.OrderLevel, api.Level1)
			if level == api.Suspended && (i.Status.NoSuspend != "" || !p.suspendable(i)) {
				level = f.level() // what it keeps asleep is measured, or host memory becomes free
			}
			switch {
			case i.phase == phaseAwake, i.phase == phaseAsleep && i.Status.Level < level:
				p.sleep(i, level, "asked for")
			case i.phase == phaseUnhealthy:
				p.stop(i, 0, "asked to sleep, but it is unhealthy")
			}
		}
	}
}

func (f *function) frozen() bool { return f.Order == OrderSleep || f.Order == OrderStop }

// Kind is the kind of an action. The values are those of [api.Decision].
type Kind string

// Kinds of action.
const (
	Start  Kind = "start"  // start a new instance, awake when done
	Wake   Kind = "wake"   // wake a sleeping instance
	Sleep  Kind = "sleep"  // put an awake instance to sleep, or a sleeping one deeper
	Keep   Kind = "keep"   // cancel an instance's draining to sleep
	Stop   Kind = "stop"   // end an instance
	Grant  Kind = "grant"  // let activators wake the instance themselves
	Revoke Kind = "revoke" // withdraw that grant
	Fail   Kind = "fail"   // refuse held requests
	Wait   Kind = "wait"   // nothing can be done yet; the reason says why
)

// Action is one thing to do now. The actions of a plan do not depend on each other.
type Action struct {
	Kind     Kind
	Function api.FunctionName
	// Instance is empty for Start (the caller names it), Fail and Wait.
	Instance api.InstanceID
	// Level is the level to sleep at, for Sleep.
	Level api.Level
	// Shrink: the sleeper's pod gives up the requests that it can spare, for Sleep.
	Shrink bool
	// Node is the instance's node, for Start the chosen one; empty: there is only one.
	Node string
	// Devices and Memory are the granted memory, for Start, Wake and Grant.
	Devices []api.DeviceID
	Memory  api.Memory
	// Expires is when a standing grant ends, for Grant.
	Expires time.Time
	// Drain is how long running requests may take, for Sleep and Stop.
	Drain time.Duration
	// Move: running requests end at once if all can continue at another instance, for Sleep and Stop.
	Move bool
	// Ahead: no request waits yet, for Start and Wake.
	Ahead bool
	// Rehearsal: the action is part of a rehearsal, for Sleep and Wake.
	Rehearsal bool
	// For is the function that room is made for, if any.
	For api.FunctionName
	// Fault is why the instance failed to start, for Stop: it counts as a failed start.
	Fault string
	// Err is the answer to held requests, for Fail.
	Err *api.Error
	// Reason is one sentence with the numbers that mattered.
	Reason string
}

// String returns the action in one line.
func (a Action) String() string {
	s := string(a.Kind) + " "
	if a.Instance != "" {
		s += string(a.Instance)
	} else {
		s += string(a.Function)
	}
	if a.Kind == Sleep {
		s += fmt.Sprintf(" at level %d", a.Level)
	}
	if a.Kind == Start && len(a.Devices) > 0 {
		s += fmt.Sprintf(" on %v", a.Devices)
	}
	if a.Kind == Start && len(a.Devices) == 0 && a.Node != "" {
		s += " on " + a.Node
	}
	return s + ": " + a.Reason
}
