package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Kinds of victim, in the order in which they are taken.
const (
	granted = iota // a sleeper's reservation: costs nothing
	idle           // no request uses it
	surplus        // its function is busy, but has more awake than it needs
	busy           // it has work, or work waits for it
)

type victim struct {
	i     *instance
	kind  int
	to    api.Level // LevelAwake: its grant is revoked; inventory.Stopped: it ends
	frees bytes     // in the order of the option's devices
	// loss is the duration of its return divided by the time until it is needed, plus a part of the demand's wait for
	// it.
	loss  float64
	ready time.Time
}

// victims returns the smallest set that must give way for o, busy ones only for a first instance; false: everything is
// not enough.
func (s *search) victims(o *option) ([]victim, bool) {
	short := s.alloc(len(o.at))
	for k, d := range o.at {
		if o.touches[k] > 0 {
			short[k] = max(0, o.needs[k]-s.free[d]-s.coming[d])
		}
	}
	cands := s.candidates(o, short)
	slices.SortStableFunc(cands, s.compareVictims)
	chosen := s.chosen[:0]
	for k := 0; k < len(cands) && !met(short); k++ {
		if helps(cands[k].frees, short) {
			chosen = choose(chosen, cands[k], short)
		}
	}
	s.chosen = chosen
	if !met(short) {
		return nil, false
	}
	return prune(chosen, short), true
}

func (s *search) compareVictims(v, w victim) int {
	return cmp.Or(
		cmp.Compare(v.kind, w.kind),
		cmp.Compare(priority(v.i), priority(w.i)),
		cmp.Compare(btoi(v.ready.After(s.now)), btoi(w.ready.After(s.now))),
		cmp.Compare(v.loss, w.loss))
}

func met(short bytes) bool {
	return !slices.ContainsFunc(short, func(s api.Bytes) bool { return s > 0 })
}

func priority(i *instance) int { return i.f.Spec.Priority }

func helps(frees, short bytes) bool {
	for d, s := range short {
		if s > 0 && frees[d] > 0 {
			return true
		}
	}
	return false
}

// choose adds v, or replaces a smaller step of the same instance, and subtracts what it frees from short.
func choose(chosen []victim, v victim, short bytes) []victim {
	for k, w := range chosen {
		if w.i != v.i {
			continue
		}
		more := false
		for d := range short {
			more = more || short[d] > 0 && v.frees[d] > w.frees[d]
		}
		if !more {
			return chosen
		}
		for d := range short {
			short[d] += w.frees[d] - v.frees[d]
		}
		chosen[k] = v
		return chosen
	}
	for d := range short {
		short[d] -= v.frees[d]
	}
	return append(chosen, v)
}

// prune drops victims that turned out not to be needed, the most costly first.
func prune(chosen []victim, short bytes) []victim {
	for k := len(chosen) - 1; k >= 0; k-- {
		unneeded := true
		for d := range short {
			// Devices on which nothing was short don't count.
			if short[d]+chosen[k].frees[d] > 0 && chosen[k].frees[d] > 0 {
				unneeded = false
			}
		}
		if unneeded {
			for d := range short {
				short[d] += chosen[k].frees[d]
			}
			chosen = slices.Delete(chosen, k, k+1)
		}
	}
	return chosen
}

// candidates lists what could give some of what is short, by function. The list is valid until the next call.
func (s *search) candidates(o *option, short bytes) []victim {
	s.holders, s.cands = s.holders[:0], s.cands[:0]
	for k, d := range o.at {
		if short[k] <= 0 {
			continue
		}
		for _, i := range s.on[d] {
			if !i.f.Undeclared {
				s.holders = append(s.holders, i.f)
			}
		}
	}
	slices.SortFunc(s.holders, func(a, b *function) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	for _, f := range slices.Compact(s.holders) {
		s.offer(o, f, short)
	}
	return s.cands
}

func (s *search) offer(o *option, f *function, short bytes) {
	interrupt := s.dm.class == first
	add := func(v victim, held bytes, stays api.Memory) {
		if v.frees = s.released(v.i, held, stays, o.at); helps(v.frees, short) {
			s.cands = append(s.cands, v)
		}
	}
	excess := f.live() - f.desired
	awake := 0
	for k := len(f.instances) - 1; k >= 0; k-- { // the newest goes first
		i := f.instances[k]
		if i == o.self || i.taken || i.Doing != Nothing {
			continue
		}
		switch i.phase {
		case phaseAsleep:
			if i.reserved() {
				add(victim{i: i, kind: granted, ready: i.RetryAt}, i.held, i.Status.Memory)
				if f == s.f {
					continue
				}
			}
			if f.Waiting == 0 || f.live() > 0 { // also with a grant: else a plan would revoke what the next one gives
				s.offerSteps(i, idle, i.RetryAt, i.Status.Level, add)
			} else if interrupt && f != s.f {
				s.offerSteps(i, busy, i.RetryAt, i.Status.Level, add)
			}
		case phaseAwake, phaseUnhealthy:
			awake++
			if f == s.f {
				continue
			}
			kind := busy
			switch {
			case awake <= excess && !f.busy():
				kind = idle
			case awake <= excess:
				kind = surplus
			case f.awake+f.unhealthy-awake < f.Spec.MinScale || !interrupt:
				continue
			}
			s.offerSteps(i, kind, later(i.RetryAt, s.readyAt(o, i, kind, awake)), api.LevelAwake, add)
		}
	}
}

// restHorizon weighs the time a victim takes to fall asleep against its loss. Of two whose return takes 1 s, one that
// takes 17 s to sleep goes before one of 2 s only if the latter is needed within about a minute.
const restHorizon = 1000 * time.Second

func (s *search) offerSteps(i *instance, kind int, ready time.Time, level api.Level, add func(victim, bytes, api.Memory)) {
	past := &i.f.Past
	held := i.held
	if i.settling(s.now) {
		held, ready = s.expected(i), later(ready, i.Settles)
	}
	wanted := s.untilWanted(i)
	var waits float64
	if level == api.LevelAwake {
		waits = i.rest().Seconds() / restHorizon.Seconds()
	}
	loss := func(to api.Level) float64 { return past.Return(to).Seconds()/wanted + waits }
	from, most := max(api.Level1, level+1), api.Suspended
	if level == api.LevelAwake {
		from, _ = s.levelFor(i)
		switch {
		case from == api.Level2 && i.f.level() < api.Level2:
			most = from // its weights must go
		case s.suspends(i):
			from = most // others need its devices
		}
	}
	if i.phase != phaseUnhealthy && i.Failures < 2 { // one that refuses to sleep is stopped
		for to := from; to <= most; to++ {
			if to == api.Suspended && !s.suspends(i) {
				continue
			}
			add(victim{i: i, kind: kind, to: to, loss: loss(to), ready: ready}, held, i.residue(to))
		}
	}
	add(victim{i: i, kind: kind, to: inventory.Stopped, loss: loss(inventory.Stopped), ready: ready}, held, api.Memory{})
}

// readyAt returns when i, the nth from the newest of its function, may make room:
//
//  1. idle or surplus: after a moment, at most half the cost of bringing it back, if it has not stayed for long
//  2. idle, and its function was awake within MaxStay before this wake: when it has stayed long enough to be worth the
//     wake, unless the next request is unlikely before
//  3. busy: when it has stayed long enough to be worth the switch, and the demand has starved for a turn's wait
func (s *search) readyAt(o *option, i *instance, kind, n int) time.Time {
	if kind != busy {
		stay := s.stayFor(i.f.Past.Return(i.From))
		if s.now.Sub(i.Since) >= stay || i.phase == phaseUnhealthy {
			return time.Time{}
		}
		used := s.usedUntil(i, i.f.awake-n+1)
		if i.f.awake == 1 && i.Since.Sub(i.f.ServedUntil) < s.pol.MaxStay { // 2
			var idle time.Duration // in steps, so that the answer seldom changes
			next := s.pol.IdleGrace
			for !s.now.Before(used.Add(next)) {
				idle, next = next, 2*next
			}
			ends := i.Since.Add(stay)
			if chance, known := i.f.Past.Arrivals.Chance(idle, ends.Sub(used)); known && chance >= even {
				return used.Add(min(next, ends.Sub(used)))
			}
		}
		if s.now.Sub(i.Since) >= s.pol.MinStay { // 1
			return time.Time{}
		}
		return used.Add(min(s.pol.IdleGrace, (i.f.Past.Return(i.f.level())+i.rest())/2))
	}
	level := inventory.Stopped // 3
	if o.self != nil {
		level = o.self.Status.Level
	}
	wait := s.pol.TurnWait
	switch own, other := s.f.Spec.Priority, i.f.Spec.Priority; {
	case own > other:
		wait = 0
	case own < other:
		wait *= patience
	}
	return later(i.Since.Add(s.stayFor(i.rest()+s.f.Past.Return(level))), s.f.starved.Add(wait))
}

func (s *search) stayFor(cost time.Duration) time.Duration {
	return max(s.pol.MinStay, min(s.pol.MaxStay, time.Duration(s.pol.SwitchShare*float64(cost))))
}

// moves reports whether the requests of v are moved at once:
//
//  1. if its function has other instances awake for them
//  2. if dm's function has a higher priority
func moves(dm *demand, v *victim) bool {
	if v.i.phase != phaseAwake || !v.i.f.Spec.Moves() {
		return false
	}
	return v.kind == surplus || v.kind == busy && dm.f.Spec.Priority > priority(v.i)
}

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

// neighbours are the functions that may use the memory of a node. Those with no instance anywhere count on each node,
// divided by the number of nodes.
type neighbours struct {
	here   [][]*function // by node
	absent []*function
	// ordered are those of absent that were started once, by their expected next requests. weights[k] is of absent,
	// where those before ordered[k] keep their weights.
	ordered  []*function
	weights  []weights
	contests map[facts]contest // of absent, by kind of device
}

func (p *plan) neighbours() *neighbours {
	if p.near != nil {
		return p.near
	}
	near := &neighbours{here: make([][]*function, len(p.nodes)), contests: make(map[facts]contest)}
	p.near = near
	for _, f := range p.fs {
		if f.Undeclared {
			continue
		}
		absent := true
		for _, i := range f.instances {
			if i.lost {
				continue
			}
			absent = false
			if here := &near.here[i.node]; !slices.Contains(*here, f) {
				*here = append(*here, f)
			}
		}
		if absent {
			near.absent = append(near.absent, f)
		}
	}
	return near
}

func (p *plan) sumWeights(near *neighbours) {
	for _, f := range p.fs {
		f.until, _ = p.untilRequest(f)
	}
	var last weights
	for _, f := range near.absent {
		if f.Past.Starts > 0 {
			near.ordered = append(near.ordered, f)
		} else {
			last.add(f, false)
		}
	}
	slices.SortFunc(near.ordered, (*function).compareUntil)
	near.weights = make([]weights, len(near.ordered)+1)
	for k, f := range slices.Backward(near.ordered) {
		near.weights[k+1] = last
		last.add(f, false)
	}
	near.weights[0] = last
	var kept api.Bytes
	for k, f := range near.ordered {
		kept += f.weights()
		near.weights[k+1].asleep += kept
	}
}

func (f *function) compareUntil(g *function) int {
	return cmp.Or(cmp.Compare(f.until, g.until), cmp.Compare(f.Spec.Name, g.Spec.Name))
}

func (f *function) weights() api.Bytes {
	return max(f.Need.Host, f.Past.Residue(api.Level1).Host)
}

// weights is host memory of functions some of which keep their weights asleep.
type weights struct {
	asleep    api.Bytes // of all; those that keep their weights take no more awake
	all, most api.Bytes // what the others take more awake: all of them, the largest one
}

func (w *weights) add(f *function, keeps bool) {
	if keeps {
		w.asleep += f.weights()
		return
	}
	asleep := f.Past.Residue(api.Level2).Host
	more := max(0, f.Need.Host-asleep)
	w.asleep, w.all, w.most = w.asleep+asleep, w.all+more, max(w.most, more)
}

func (p *plan) weightsOn(node int32, f *function) weights {
	n := p.neighbours()
	if n.weights == nil {
		p.sumWeights(n)
	}
	k, _ := slices.BinarySearchFunc(n.ordered, f, (*function).compareUntil)
	w, nodes := n.weights[k], api.Bytes(len(n.here))
	w.asleep, w.all = w.asleep/nodes, w.all/nodes
	for _, g := range n.here[node] {
		w.add(g, g.Past.Starts > 0 && g.compareUntil(f) <= 0)
	}
	return w
}

type contest struct {
	asleep     api.Bytes // what all functions keep of it asleep
	awake, own api.Bytes // the largest need of one that fits, and what it keeps asleep
}

func (p *plan) contestOf(d int32, f *function) contest {
	near := p.neighbours()
	add := func(c *contest, g *function) {
		if g.Need.Devices == 0 {
			return
		}
		keeps := g.Past.Residue(api.Level1).PerDevice
		c.asleep += keeps
		if need := p.claim(d, whole(g.Need)); g != f && need > c.awake && need <= p.facts[d].capacity {
			c.awake, c.own = need, keeps
		}
	}
	c, known := near.contests[p.facts[d]]
	if !known {
		for _, g := range near.absent {
			add(&c, g)
		}
		c.asleep /= api.Bytes(len(near.here))
		near.contests[p.facts[d]] = c
	}
	for _, g := range near.here[p.of[d]] {
		add(&c, g)
	}
	return c
}
