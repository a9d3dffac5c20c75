package grants

import (
	"fmt"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// move says what happened between two states.
type move struct {
	what    string
	a, b, c int
}

func (m move) String() string { return fmt.Sprintf(m.what, m.a, m.b, m.c) }

// moves calls yield with every state that can follow s.
func (m *model) moves(s *state, yield func(move, *state)) {
	m.instancesMove(s, yield)
	m.doorsMove(s, yield)
	for l := range leaders {
		if !s.leaders[l].alive {
			n := *s // it is elected; the one before knows nothing of it
			if l > 0 {
				m.elect(&n, l)
				yield(move{"leader %d is elected[%d%d]", l, 0, 0}, &n)
			}
			continue
		}
		m.arrive(s, l, yield)
		m.leaderHears(s, l, yield)
		m.callsEnd(s, l, yield)
		m.leaderPlans(s, l, yield)
	}
}

// instancesMove: a wake ends, well or not; a sleep ends; a process ends and restarts.
func (m *model) instancesMove(s *state, yield func(move, *state)) {
	step := func(i int, to status, what string) {
		n := *s
		if m.live(&n, i, to) {
			yield(move{what, i, 0, 0}, &n)
		}
	}
	for i := range instances {
		t := s.truth(i)
		switch t.phase {
		case rising:
			step(i, status{awake, t.seen}, "instance %d is awake[%d%d]")
			step(i, status{asleep, t.seen}, "instance %d fails to wake, and sleeps[%d%d]")
		case falling:
			step(i, status{asleep, t.seen}, "instance %d is asleep[%d%d]")
		case gone:
			continue
		}
		if int(s.restarts[i]) < m.restarts {
			n := *s
			n.restarts[i]++
			if m.live(&n, i, m.reborn(s, i)) {
				m.rejoin(&n, i)
				yield(move{"instance %d ends and begins anew[%d%d]", i, 0, 0}, &n)
			}
		}
	}
}

// rejoin has the leader that a new process joins hear no more of the one before: its reports
// come with a credential that is worthless now.
func (m *model) rejoin(s *state, i int) {
	v := &s.leaders[joined(s)].views[i]
	v.at = max(v.at, s.now[i]-1)
}

// joined is the leader that instances find.
func joined(s *state) int {
	if s.leaders[1].alive {
		return 1
	}
	return 0
}

// reborn returns the state of an instance's new process: what the leader that it joins tells it.
func (m *model) reborn(s *state, i int) status {
	l := joined(s)
	led := &s.leaders[l]
	to := status{phase: asleep}
	if !m.forgetful && !m.noTerm && !m.termless {
		to.seen = m.name(decide.FirstEpoch(uint64(l + 1)))
	}
	if v := led.views[i]; m.startsAwake && (v.known.phase == awake || v.known.phase == rising && v.at > 0) && v.doing != toSleep {
		to.phase = rising
	}
	for _, o := range led.orders[:led.count] {
		if int(o.at) == i && o.kind != toGrant && !m.forgetful {
			to.seen = o.epoch
		}
	}
	return to
}

// arrive: an order of a leader arrives where it was sent to, perhaps not for the first time.
func (m *model) arrive(s *state, l int, yield func(move, *state)) {
	for k := range s.leaders[l].orders[:s.leaders[l].count] {
		o := s.leaders[l].orders[k]
		i := int(o.at)
		if o.kind != toGrant || o.used {
			n := *s
			if moment, ok := m.obey(&n, i, o.kind, o.epoch); ok && n != *s || ok && o.taken == 0 {
				if o.taken == 0 {
					n.leaders[l].orders[k].taken = moment + 1
				}
				yield(move{"instance %d obeys order %d of leader %d: " + o.kind.String(), i, k, l}, &n)
			}
		}
		for d := range m.doors {
			n := *s
			if m.doorsSuffice {
				n.leaders[l].orders[k].heard |= 1 << d
			}
			m.permission(&n, d, i, func(p queue.Permission) queue.Permission {
				if o.kind != toGrant { // each comes with a revocation up to its epoch
					return p.Revoke(m.epochs[o.epoch])
				}
				p, _ = p.Accept(api.Grant{Instance: instanceID(i), Epoch: m.epochs[o.epoch]}, clock)
				return p
			})
			if n != *s {
				yield(move{"activator %d hears of order %d of leader %d: " + o.kind.String(), d, k, l}, &n)
			}
		}
	}
}

// doorsMove: an activator sends a wake under its grant, or restarts.
func (m *model) doorsMove(s *state, yield func(move, *state)) {
	for d := range m.doors {
		for i := range instances {
			for l := range leaders {
				for k := range s.leaders[l].orders[:s.leaders[l].count] {
					o := s.leaders[l].orders[k]
					if o.kind == toGrant && int(o.at) == i && !o.used && s.doors[d][i].granted == o.epoch && o.epoch != 0 {
						n := *s
						n.leaders[l].orders[k].used = true
						yield(move{"activator %d sends a wake to instance %d under order %d", d, i, k}, &n)
					}
				}
			}
		}
		n := *s
		n.doors[d] = [instances]permission{}
		if n != *s {
			yield(move{"activator %d begins anew[%d%d]", d, 0, 0}, &n)
		}
	}
}

// leaderHears: a report arrives, in whatever order; or time passes.
func (m *model) leaderHears(s *state, l int, yield func(move, *state)) {
	for i := range instances {
		for moment := uint8(0); moment <= s.now[i]; moment++ {
			n := *s
			m.hear(&n, l, i, moment)
			if n != *s {
				yield(move{"leader %d hears of instance %d, moment %d", l, i, int(moment)}, &n)
			}
		}
		if m.clockFrees && s.leaders[l].views[i].out != 0 {
			n := *s
			n.leaders[l].views[i].out = 0
			yield(move{"leader %d: the time of what instance %d was granted is over[%d]", l, i, 0}, &n)
		}
	}
}

// callsEnd: a leader's call ends with its answer, or without.
func (m *model) callsEnd(s *state, l int, yield func(move, *state)) {
	for i := range instances {
		v := s.leaders[l].views[i]
		if v.doing == none {
			continue
		}
		n := *s
		nv := &n.leaders[l].views[i]
		nv.doing = none
		if m.freeAfterTry && v.doing == toWake {
			nv.out = 0
		}
		yield(move{"leader %d: the call to instance %d ends without an answer[%d]", l, i, 0}, &n)

		o := s.leaders[l].orders[v.call]
		moment, answered := m.answer(s, i, o)
		if !answered {
			continue
		}
		n = *s
		nv = &n.leaders[l].views[i]
		nv.doing = none
		if v.doing != toGrant {
			m.hear(&n, l, i, moment)
		}
		switch v.doing {
		case toFence, toSleep:
			nv.out = 0
		case toStop:
			nv.known.phase, nv.out = gone, 0
		}
		yield(move{"leader %d: the call to instance %d is answered[%d]", l, i, 0}, &n)
	}
}

// answer is the moment that an order is answered with, if it is yet.
func (m *model) answer(s *state, i int, o order) (moment uint8, ok bool) {
	switch {
	case o.kind == toGrant: // whether activators have it changes nothing that a leader believes
		return 0, true
	case m.doorsSuffice && o.kind == toFence:
		return s.now[i], o.heard == 1<<m.doors-1
	}
	if o.taken == 0 {
		return 0, false
	}
	want := map[kind]phase{toWake: awake, toSleep: asleep, toStop: gone}
	for k := o.taken - 1; k <= s.now[i]; k++ {
		if p, found := want[o.kind]; !found || s.past[i][k].phase == p {
			return k, true
		}
	}
	return 0, false
}
