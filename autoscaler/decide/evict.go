package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// usedUntil returns when i, the nth awake instance of its function, was last needed; for a sleeper, when the function
// was.
func (p *plan) usedUntil(i *Instance, n int) time.Time {
	t := i.Since
	if i.Rehearsed && len(i.f.NeededAt) > 0 {
		t = time.Time{} // a rehearsal does not count as use
	}
	if i.phase == phaseAwake && n <= i.f.desired {
		return p.now
	}
	if i.phase == phaseAsleep {
		if len(i.f.NeededAt) > 0 {
			return later(i.f.LastRequest, i.f.NeededAt[0])
		}
		return later(i.f.LastRequest, t)
	}
	if n >= 1 && n <= len(i.f.NeededAt) {
		t = later(t, i.f.NeededAt[n-1])
	}
	return t
}

// readyAt returns when i, the nth from the newest of its function, may make room for dm:
//
//  1. idle or surplus: after a moment for one client's next request, but only if it has not stayed for long, and no
//     longer than half the cost of bringing it back
//  2. busy: after it has stayed long enough to be worth the switch, and dm has starved for a turn's wait
func (p *plan) readyAt(dm *demand, o *option, i *Instance, kind, n int) time.Time {
	back := i.f.Past.Return(i.f.level())
	if kind != busy { // 1
		p.holdsUntil(i.Since.Add(p.pol.MinStay))
		if p.now.Sub(i.Since) >= p.pol.MinStay || i.phase == phaseIll {
			return time.Time{}
		}
		grace := min(p.pol.IdleGrace, (back+i.rest())/2)
		used := p.usedUntil(i, i.f.awake-n+1)
		if used.Equal(p.now) {
			p.uncacheable()
		}
		return used.Add(grace)
	}
	level := inventory.Stopped // 2
	if o.self != nil {
		level = o.self.Status.Level
	}
	swap := i.rest() + dm.f.Past.Return(level)
	stay := max(p.pol.MinStay, min(p.pol.MaxStay, time.Duration(p.pol.SwitchShare*float64(swap))))
	wait := p.pol.TurnWait
	switch own, other := dm.f.Spec.Priority, i.f.Spec.Priority; {
	case own > other:
		wait = 0
	case own < other:
		wait *= time.Duration(p.pol.Patience)
	}
	return later(i.Since.Add(stay), dm.f.starved.Add(wait))
}

// moves reports whether the requests of v, which can continue at another instance, are moved at once:
//
//  1. if its function has other instances awake for them
//  2. if dm's function has a higher priority: they wait for their function's next turn, as dm does now
func moves(dm *demand, v *victim) bool {
	if v.i.phase != phaseAwake || !v.i.f.Spec.Moves() {
		return false
	}
	return v.kind == surplus || v.kind == busy && dm.f.Spec.Priority > priority(v.i)
}

// evict makes v give way to dm.
func (p *plan) evict(dm *demand, v *victim, lack string) {
	v.i.f.gives = true
	p.gainer, p.moves = dm.f.Spec.Name, moves(dm, v)
	defer func() { p.gainer, p.moves = "", false }()
	reason := fmt.Sprintf("makes room for %s, which lacks %s", dm.f.Spec.Name, lack)
	switch {
	case v.kind == granted, v.i.phase == phaseAsleep && v.i.reserved():
		stays := bytes(nil)
		if v.kind == granted {
			stays = p.residue(v.i, v.i.Status.Level)
		}
		p.do(v.i.f, v.i, Action{Kind: Revoke, For: p.gainer, Reason: reason})
		p.leave(v.i, stays)
		return
	case v.kind == busy && v.i.phase == phaseAwake:
		reason = fmt.Sprintf("its turn ends after %s with %d running and %d waiting: %s has waited %s and lacks %s",
			short(p.now.Sub(v.i.Since)), v.i.f.Running, v.i.f.Waiting, dm.f.Spec.Name, short(p.now.Sub(dm.f.starved)), lack)
	case v.kind == surplus:
		reason = fmt.Sprintf("%d awake or on the way, %d needed; %s", v.i.f.live(), v.i.f.desired, reason)
	case v.i.phase == phaseAwake:
		reason = fmt.Sprintf("idle for %s; %s", short(p.now.Sub(p.usedUntil(v.i, 1))), reason)
	case v.i.phase == phaseAsleep:
		reason = fmt.Sprintf("asleep for %s; %s", short(p.now.Sub(v.i.Since)), reason)
	}
	if p.moves {
		reason += "; moves its requests, or drains"
	}
	if v.to == inventory.Stopped {
		p.stop(v.i, p.pol.Drain, reason)
		return
	}
	p.sleep(v.i, v.to, reason)
}
