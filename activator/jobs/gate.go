package jobs

import (
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator"
)

// gate divides a model's spare slots evenly among the batches with lines for it, so that the first one does not take
// them all. It is safe for concurrent use. The zero value is empty.
type gate struct {
	mu     sync.Mutex // guards models, and what the members have
	models map[string]map[*member]struct{}
}

// member is a batch's lines for one model.
type member struct {
	model    string
	deadline time.Time // of the batch
	left     int       // lines without a result
	behind   int       // of these, lines sent in the background
}

// join adds a batch's lines.
func (g *gate) join(model string, deadline time.Time, left int) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.models == nil {
		g.models = map[string]map[*member]struct{}{}
	}
	if g.models[model] == nil {
		g.models[model] = map[*member]struct{}{}
	}
	m := &member{model: model, deadline: deadline, left: left}
	g.models[model][m] = struct{}{}
	return m
}

// leave removes m, which has no more lines in the background.
func (g *gate) leave(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.models[m.model]
	if delete(all, m); len(all) == 0 {
		delete(g.models, m.model)
	}
}

// settled records that a line of m has its result.
func (g *gate) settled(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.left--
}

// before returns how many lines of the model must be answered for all of m's to be: those of batches with no later
// deadline.
func (g *gate) before(m *member) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for other := range g.models[m.model] {
		if !other.deadline.After(m.deadline) {
			n += other.left
		}
	}
	return n
}

// enter admits up to want more lines of m to the background, and returns how many.
func (g *gate) enter(m *member, room activator.Room, want int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	all, behind := g.models[m.model], 0
	for other := range all {
		behind += other.behind
	}
	// Lines that were just admitted may not have their slots yet.
	free := min(room.Free, room.Slots-behind) - reserved(room.Slots)
	share := (max(free, 0) + behind + len(all) - 1) / len(all)
	n := max(0, min(want, free, share-m.behind))
	m.behind += n
	return n
}

// left removes a line of m from the background.
func (g *gate) left(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.behind--
}

// reserved returns how many slots stay free for clients that wait for their answers.
func reserved(slots int) int {
	if slots <= 1 {
		return 0
	}
	return max(1, slots/8)
}
