package supervise

import (
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// callers are the calls of the control plane that wait for their goal.
type callers struct {
	calls   chan *call // from callers to the owner; unbuffered; never closed
	leaves  chan *call // from callers that stop waiting; unbuffered; never closed
	waiting []*call
}

func newCallers() callers { return callers{calls: make(chan *call), leaves: make(chan *call)} }

func (w *callers) add(c *call) { w.waiting = append(w.waiting, c) }

func (w *callers) remove(c *call) {
	w.waiting = slices.DeleteFunc(w.waiting, func(o *call) bool { return o == c })
}

func (w *callers) want(state api.State) bool {
	return slices.ContainsFunc(w.waiting, func(c *call) bool { return c.goal.state == state })
}

func (w *callers) answer(state api.State, err error) {
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool {
		if c.goal.state != state {
			return false
		}
		c.answer <- err
		return true
	})
}

// settle answers the calls whose goal is reached, and, once the wanted state is reached, those whose goal it does not fulfil.
func (w *callers) settle(is, wanted goal) {
	final := is.reaches(wanted)
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool {
		switch {
		case is.reaches(c.goal):
			c.answer <- nil
		case final && c.goal.state != api.Gone:
			c.answer <- stale("a newer call overtook this one: the instance is %s", is.state)
		default:
			return false
		}
		return true
	})
}

// reaches reports whether g fulfils wanted: a deeper sleep fulfils a lighter one.
func (g goal) reaches(wanted goal) bool {
	return g.state == wanted.state && (g.state != api.Asleep || g.level >= wanted.level)
}
