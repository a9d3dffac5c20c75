package sched

import (
	"math"
	"slices"
	"sort"
)

const promoted = math.MinInt

// idleFlows bounds tenants without sequences.
const idleFlows = 1024

// queue has a class per rank, in it a flow per tenant, in it sequences by arrival.
type queue struct {
	len     int
	classes []*class // by rank; the first is for promoted sequences
	flows   map[flowKey]*flow
	live    int // with sequences, running or waiting
}

type flowKey struct {
	priority int
	tenant   string
}

type class struct {
	rank    int
	clock   int64   // virtual time of the flow served last
	waiting []*flow // with waiting sequences
	flows   int     // all
	live    int     // with sequences, running or waiting
}

type flow struct {
	key        flowKey
	class      *class
	time       int64 // virtual: tokens computed
	live       int   // sequences, running or waiting
	seats      int   // running sequences
	step       uint64
	got        int       // tokens for prompts in that step
	head, tail *sequence // waiting, by arrival
}

func newQueue() queue {
	front := &class{rank: promoted}
	f := &flow{class: front}
	front.flows = 1
	return queue{classes: []*class{front}, flows: map[flowKey]*flow{{promoted, ""}: f}}
}

func (u *queue) front() *flow { return u.flows[flowKey{promoted, ""}] }

// flow creates a flow if needed. One with nothing waiting starts at the class's time: unused share is lost.
func (u *queue) flow(priority int, tenant string) *flow {
	k := flowKey{priority, tenant}
	f := u.flows[k]
	if f == nil {
		c := u.class(priority)
		f = &flow{key: k, class: c, time: c.clock}
		c.flows++
		u.flows[k] = f
	}
	if f.head == nil {
		f.time = max(f.time, f.class.clock)
	}
	if f.live == 0 {
		u.live++
		f.class.live++
	}
	return f
}

func (u *queue) class(rank int) *class {
	i := sort.Search(len(u.classes), func(i int) bool { return u.classes[i].rank >= rank })
	if i == len(u.classes) || u.classes[i].rank != rank {
		u.classes = slices.Insert(u.classes, i, &class{rank: rank})
	}
	return u.classes[i]
}

// part removes a finished sequence from its flow, which is remembered while it has had more than others: leaving and
// returning gains nothing. If there are too many such flows, all are forgotten.
func (u *queue) part(q *sequence) {
	f := q.flow
	if f.live--; f.live > 0 {
		return
	}
	u.live--
	f.class.live--
	if f.time <= f.class.clock {
		u.forget(f)
	}
	if len(u.flows) > u.live+1+idleFlows {
		for _, f := range u.flows {
			if f.live == 0 && f.class.rank != promoted {
				u.forget(f)
			}
		}
	}
}

func (u *queue) forget(f *flow) {
	delete(u.flows, f.key)
	c := f.class
	if c.flows--; c.flows == 0 {
		u.classes = slices.DeleteFunc(u.classes, func(o *class) bool { return o == c })
	}
}

func (u *queue) line(q *sequence) *flow {
	if q.rank == promoted {
		return u.front()
	}
	return q.flow
}

// push keeps the order of arrival.
func (u *queue) push(q *sequence) {
	f := u.line(q)
	if f.head == nil {
		f.class.waiting = append(f.class.waiting, f)
	}
	u.len++
	if f.tail == nil || f.tail.order < q.order { // the usual case
		q.prev, q.next = f.tail, nil
		if f.tail == nil {
			f.head = q
		} else {
			f.tail.next = q
		}
		f.tail = q
		return
	}
	o := f.head
	for o.order < q.order {
		o = o.next
	}
	q.next, q.prev = o, o.prev
	if o.prev == nil {
		f.head = q
	} else {
		o.prev.next = q
	}
	o.prev = q
}

func (u *queue) remove(q *sequence) {
	f := u.line(q)
	if q.prev == nil {
		f.head = q.next
	} else {
		q.prev.next = q.next
	}
	if q.next == nil {
		f.tail = q.prev
	} else {
		q.next.prev = q.prev
	}
	q.next, q.prev = nil, nil
	u.len--
	if f.head == nil {
		w := f.class.waiting
		i := slices.Index(w, f)
		w[i] = w[len(w)-1]
		w[len(w)-1] = nil
		f.class.waiting = w[:len(w)-1]
	}
}

// peek returns the next sequence with room, or nil.
func (u *queue) peek(room func(*sequence) int) *sequence {
	if u.len == 0 {
		return nil
	}
	for _, c := range u.classes {
		var best *sequence
		for _, f := range c.waiting {
			if (best == nil || sooner(f.head, best)) && room(f.head) > 0 {
				best = f.head
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

func (u *queue) oldest() (q *sequence) {
	for _, c := range u.classes {
		for _, f := range c.waiting {
			if q == nil || f.head.order < q.order {
				q = f.head
			}
		}
	}
	return q
}

// sooner orders sequences that want budget for their prompt:
//
//  1. by priority,
//  2. by the tenant's tokens, fewest first,
//  3. running before waiting,
//  4. by arrival.
func sooner(q, o *sequence) bool {
	switch {
	case q.rank != o.rank: // 1
		return q.rank < o.rank
	case q.rank != promoted && q.flow.time != o.flow.time: // 2
		return q.flow.time < o.flow.time
	case q.state != o.state: // 3
		return q.state == running
	}
	return q.order < o.order // 4
}
