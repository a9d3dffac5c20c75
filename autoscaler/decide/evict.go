package decide

import (
	"fmt"

	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

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
	gainer := dm.f.Spec.Name
	reason := fmt.Sprintf("makes room for %s, which lacks %s", gainer, lack)
	switch {
	case v.kind == granted, v.i.phase == phaseAsleep && v.i.reserved():
		stays := v.i.Status.Memory
		if v.kind != granted {
			stays = v.i.residue(v.to)
		}
		p.addAction(v.i.f, v.i, Action{Kind: Revoke, For: gainer, Reason: reason})
		p.bookRelease(v.i, stays)
		return
	case v.kind == busy && v.i.phase == phaseAwake:
		reason = fmt.Sprintf("its turn ends after %s with %d running and %d waiting: %s has waited %s and lacks %s",
			short(p.now.Sub(v.i.Since)), v.i.f.Running, v.i.f.Waiting, gainer, short(p.now.Sub(dm.f.starved)), lack)
	case v.kind == surplus:
		reason = fmt.Sprintf("%d awake or on the way, %d needed; %s", v.i.f.live(), v.i.f.desired, reason)
	case v.i.phase == phaseAwake:
		reason = fmt.Sprintf("idle for %s; %s", short(p.now.Sub(p.usedUntil(v.i, 1))), reason)
	case v.i.phase == phaseAsleep:
		reason = fmt.Sprintf("asleep for %s; %s", short(p.now.Sub(v.i.Since)), reason)
	}
	move := moves(dm, v)
	if move {
		reason += "; moves its requests, or drains"
	}
	var a *Action
	if v.to == inventory.Stopped {
		a = p.stop(v.i, p.pol.Drain, reason)
	} else {
		a = p.sleep(v.i, v.to, reason)
	}
	a.For, a.Move = gainer, move
}
