package grants

import (
	"fmt"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// Bounds of arrays; a model may use less.
const (
	instances  = 2
	leaders    = 2
	mostDoors  = 2 // activators
	mostOrders = 6 // of one leader
	mostPast   = 10
)

// name stands for an epoch in a state: states are compared and kept by the million.
type name = uint8

// phase is where an instance truly is.
type phase uint8

const (
	asleep phase = iota
	rising
	awake
	falling
	gone
)

func (p phase) String() string {
	return [...]string{"asleep", "rising", "awake", "falling", "gone"}[p]
}

// holds reports whether the memory for being awake is in use.
func (p phase) holds() bool { return p == rising || p == awake || p == falling }

// status is one moment of an instance, which it may have reported or answered with.
type status struct {
	phase phase
	seen  name
}

// order is one thing that a leader has told the world. Once there it may arrive at any time.
type order struct {
	kind  kind
	at    uint8 // the instance
	epoch name
	// taken is the moment after an instance has taken it in; 0: it never has.
	taken uint8
	// used says that an activator has sent a wake under it.
	used bool
	// heard are the activators that have heard of it, as bits, where that matters.
	heard uint8
}

type kind uint8

const (
	none kind = iota
	toWake
	toSleep
	toFence
	toStop
	toGrant
)

func (k kind) String() string {
	return [...]string{"nothing", "wake", "sleep", "fence", "stop", "grant"}[k]
}

// view is a leader's view of one instance.
type view struct {
	known status
	at    uint8 // the moment that known is of
	out   name  // the epoch of the permission that counts; 0: none
	due   bool  // it is to be renewed, where that may be
	top   name  // the highest epoch that the instance was given, or has seen
	doing kind  // the call under way
	call  uint8 // which of its orders that is
}

// leader is one autoscaler.
type leader struct {
	alive  bool
	last   name // of [decide.Epochs]
	views  [instances]view
	orders [mostOrders]order
	count  uint8
}

// state is all that there is. It is a value, and equal ones are one.
type state struct {
	past     [instances][mostPast]status // of each instance: all moments until now
	now      [instances]uint8            // the last of them
	restarts [instances]uint8
	leaders  [leaders]leader
	doors    [mostDoors][instances]permission
}

// permission is [queue.Permission] in few bytes.
type permission struct{ granted, revoked name }

func (s *state) truth(i int) status { return s.past[i][s.now[i]] }

// model is the world's bounds, and the rules that are left out of it.
type model struct {
	doors    int // activators
	orders   int // that one leader may give
	restarts int // of each instance
	moments  int // that one instance may live through
	settled  bool

	// Mutants: each leaves out one rule, and must be found out.
	noFence      bool // instances obey orders of any epoch
	noWait       bool // memory is free as soon as the fence is sent
	noSuspect    bool // what one before us may have granted does not count
	noTerm       bool // epochs come from the clocks of two machines
	doorsSuffice bool // memory is free when all activators have acknowledged, the instance is not asked
	freeAfterTry bool // a wake that failed has left nothing behind
	clockFrees   bool // memory is free when a grant's time is over by the leader's clock
	forgetful    bool // a restarted process is told nothing, and no part notices
	termless     bool // a restarted process is not told the term of the leader that answers it
	startsAwake  bool // a restarted process starts its runtime if the leader believes the previous one to be awake

	names  map[uint64]name // epochs, interned
	epochs []uint64
	plans  map[planKey][]planned
}

func newModel(change func(*model)) *model {
	m := &model{doors: 1, orders: 4, restarts: 1, moments: 9,
		names: map[uint64]name{0: 0}, epochs: []uint64{0}, plans: map[planKey][]planned{}}
	if change != nil {
		change(m)
	}
	return m
}

func (m *model) name(epoch uint64) name {
	n, found := m.names[epoch]
	if !found {
		n = name(len(m.epochs))
		if int(n) != len(m.epochs) {
			panic("more epochs than names")
		}
		m.names[epoch] = n
		m.epochs = append(m.epochs, epoch)
	}
	return n
}

// begin is the first state: both sleep, and the first leader has just come; or, where the
// model is settled, it has come, has heard of both, and has made sure of them.
func (m *model) begin() state {
	var s state
	m.elect(&s, 0)
	if !m.settled {
		return s
	}
	for i := range instances {
		fence := m.next(&s, 0, i)
		m.obey(&s, i, toFence, fence)
		m.hear(&s, 0, i, s.now[i])
		s.past[i][0], s.now[i] = s.past[i][s.now[i]], 0
		s.leaders[0].views[i].at, s.leaders[0].views[i].out, s.leaders[0].views[i].due = 0, 0, false
	}
	return s
}

// elect has a leader begin: it knows that the instances exist, and nothing else.
func (m *model) elect(s *state, l int) {
	s.leaders[l].alive = true
	for i := range instances {
		s.leaders[l].views[i] = view{known: status{phase: rising}}
		if !m.noSuspect {
			s.leaders[l].views[i].out, s.leaders[l].views[i].due = m.next(s, l, i), true
		}
	}
}

// next is the epoch of a leader's next order to an instance.
func (m *model) next(s *state, l, i int) name {
	led := &s.leaders[l]
	e := decide.Epochs{Term: uint64(l + 1), Last: m.epochs[led.last]}
	at := clock
	if m.noTerm {
		e.Term, at = 0, clock.Add(-backwards*jump(l))
	}
	epoch := m.name(e.Next(m.epochs[led.views[i].top], at))
	led.last, led.views[i].top = m.name(e.Last), epoch
	return epoch
}

// give adds an order of a leader. false: it has given as many as the model has room for.
func (m *model) give(s *state, l, i int, k kind) (uint8, bool) {
	led := &s.leaders[l]
	if int(led.count) == m.orders {
		return 0, false
	}
	led.orders[led.count] = order{kind: k, at: uint8(i), epoch: m.next(s, l, i)}
	led.count++
	return led.count - 1, true
}

// live adds a moment to an instance's past. false: the model has no room for more.
func (m *model) live(s *state, i int, to status) bool {
	if s.truth(i) == to {
		return true
	}
	if int(s.now[i])+1 == m.moments {
		return false
	}
	s.now[i]++
	s.past[i][s.now[i]] = to
	return true
}

// obey has an instance take in an order, by the rule of package functions/supervise.
func (m *model) obey(s *state, i int, k kind, epoch name) (moment uint8, ok bool) {
	t := s.truth(i)
	if t.phase == gone || !m.noFence && api.StaleEpoch(m.epochs[epoch], m.epochs[t.seen]) {
		return 0, false
	}
	if m.epochs[epoch] > m.epochs[t.seen] {
		t.seen = epoch
	}
	switch k {
	case toWake, toGrant:
		if t.phase == asleep || t.phase == falling {
			t.phase = rising
		}
	case toSleep:
		if t.phase == awake || t.phase == rising {
			t.phase = falling
		}
	case toStop:
		t.phase = gone
	}
	ok = m.live(s, i, t)
	return s.now[i], ok
}

// hear has a leader take in a moment of an instance, as its merge does.
func (m *model) hear(s *state, l, i int, moment uint8) {
	v := &s.leaders[l].views[i]
	if moment <= v.at && v.at > 0 {
		return
	}
	old := v.known
	v.known, v.at = s.past[i][moment], moment
	if m.epochs[v.known.seen] > m.epochs[v.top] && !m.beyond(l, v.known.seen) {
		v.top = v.known.seen
	}
	before, now := m.say(i, old), m.say(i, v.known)
	switch {
	case m.beyond(l, v.known.seen):
	case decide.ForgotEpoch(before, now):
		if !m.forgetful {
			v.out, v.due = m.next(s, l, i), true
		}
	case v.out != 0 && decide.SettleGrant(api.Grant{Instance: now.Instance, Epoch: m.epochs[v.out]}, now).Instance == "":
		v.out = 0
	}
}

func (m *model) beyond(l int, seen name) bool {
	e := decide.Epochs{Term: uint64(l + 1)}
	if m.noTerm {
		e.Term = 0
	}
	return e.Beyond(m.epochs[seen])
}

// say is a moment as a report.
func (m *model) say(i int, t status) api.InstanceStatus {
	return api.InstanceStatus{Instance: instanceID(i), Function: functionName(i), State: states[t.phase], Epoch: m.epochs[t.seen]}
}

// permission has an activator's rules decide.
func (m *model) permission(s *state, d, i int, rule func(queue.Permission) queue.Permission) {
	p := &s.doors[d][i]
	w := queue.Permission{Revoked: m.epochs[p.revoked]}
	if p.granted != 0 {
		w.Grant = api.Grant{Instance: instanceID(i), Epoch: m.epochs[p.granted]}
	}
	w = rule(w)
	p.granted, p.revoked = m.name(w.Grant.Epoch), m.name(w.Revoked)
}

// broken says what must never be; empty: it is not.
func (s *state) broken() string {
	if a, b := s.truth(0).phase, s.truth(1).phase; a.holds() && b.holds() {
		return fmt.Sprintf("the first instance is %s and the second is %s, on memory for one", a, b)
	}
	return ""
}
