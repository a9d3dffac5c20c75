package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"

	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// usedUntil returns when i, the nth awake instance of its function, was last needed; for a sleeper, when the function
// was.
func (p *plan) usedUntil(i *instance, n int) time.Time {
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

// readyAt returns when i, the nth from the newest of its function, may make room for the demand:
//
//  1. idle or surplus: after a moment for one client's next request, but only if it has not stayed for long, and no
//     longer than half the cost of bringing it back
//  2. busy: after it has stayed long enough to be worth the switch, and the demand has starved for a turn's wait
func (s *search) readyAt(o *option, i *instance, kind, n int) time.Time {
	back := i.f.Past.Return(i.f.level())
	if kind != busy { // 1
		if s.now.Sub(i.Since) >= s.pol.MinStay || i.phase == phaseIll {
			return time.Time{}
		}
		grace := min(s.pol.IdleGrace, (back+i.rest())/2)
		return s.usedUntil(i, i.f.awake-n+1).Add(grace)
	}
	level := inventory.Stopped // 2
	if o.self != nil {
		level = o.self.Status.Level
	}
	swap := i.rest() + s.f.Past.Return(level)
	stay := max(s.pol.MinStay, min(s.pol.MaxStay, time.Duration(s.pol.SwitchShare*float64(swap))))
	wait := s.pol.TurnWait
	switch own, other := s.f.Spec.Priority, i.f.Spec.Priority; {
	case own > other:
		wait = 0
	case own < other:
		wait *= time.Duration(s.pol.Patience)
	}
	return later(i.Since.Add(stay), s.f.starved.Add(wait))
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
		var stays api.Memory
		if v.kind == granted {
			stays = v.i.Status.Memory
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
