package sched_test

import (
	"slices"

	"github.com/rouse-dev/rouse/engine/sched"
)

func (m *machine) update() bool {
	if len(m.flights) == 0 {
		return false
	}
	f := m.flights[0]
	m.flights = m.flights[1:]
	var results []sched.Result
	for _, o := range f.list {
		if o.life.over {
			m.extra++
			if m.r.IntN(2) == 0 {
				continue // engines may send them or not
			}
		}
		r := sched.Result{ID: o.id}
		for _, t := range o.tokens {
			r.Tokens = append(r.Tokens, t)
			if r.Done = t == 0; r.Done {
				break
			}
		}
		results = append(results, r)
		m.take(o, r)
	}
	m.results = results
	if !m.sched.Update(f.step, results) {
		m.t.Fatalf("the output of step %d is refused", f.step)
	}
	m.check()
	return true
}

// take records one result.
func (m *machine) take(o output, r sched.Result) {
	l := o.life
	if l.over {
		return
	}
	l.tokens = append(l.tokens, r.Tokens...)
	if n := len(l.tokens); n > len(l.want) || !slices.Equal(l.tokens, l.want[:n]) {
		m.t.Fatalf("sequence %d has %v, alone it has %v", o.id, l.tokens, l.want)
	}
	if o.pool != l.req.Pool {
		m.t.Fatalf("sequence %d: the result of an embedding: %v", o.id, o.pool)
	}
	if o.pool || r.Done || len(l.tokens) == l.req.Max {
		if len(l.tokens) != len(l.want) {
			m.t.Fatalf("sequence %d ends with %v, alone it has %v", o.id, l.tokens, l.want)
		}
		m.forget(o.id)
	}
}

// drain steps until all sequences are done.
func (m *machine) drain() {
	for steps := 0; len(m.live) > 0 || len(m.flights) > 0; steps++ {
		if steps > 100000 {
			m.t.Fatalf("%d sequences never end: %+v", len(m.live), m.sched.Stats())
		}
		for m.schedule() && m.r.IntN(4) > 0 {
		}
		m.update()
	}
	s := m.sched.Stats()
	if s.Running != 0 || s.Waiting != 0 || s.BlocksUsed != 0 || m.sched.Busy() || m.sched.InFlight() != 0 {
		m.t.Fatalf("after the end: %+v", s)
	}
}
