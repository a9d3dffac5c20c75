package batch

import (
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator"
)

// gate divides what is left over of a model among the batches that have lines for it: evenly, so that one that came first does not
// keep all of it. It is safe for many goroutines. The zero value is empty.
type gate struct {
	mu     sync.Mutex // guards models, and what the members have
	models map[string]map[*member]struct{}
}

// member is the lines that a batch has for a model.
type member struct {
	model    string
	deadline time.Time // of the batch
	left     int       // without a result
	behind   int       // of these, those that were sent in the background
}

// join counts the lines of a batch in.
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

// leave takes them out. Nothing of m is in the background any more.
func (g *gate) leave(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.models[m.model]
	if delete(all, m); len(all) == 0 {
		delete(g.models, m.model)
	}
}

// settled notes that a line of m has its result.
func (g *gate) settled(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.left--
}

// before is how many lines of the model have to be answered for all of m's to be: those of batches that are to be done no later.
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

// enter lets as many more lines of m in as may go in the background, up to want.
func (g *gate) enter(m *member, room activator.Room, want int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	all, behind := g.models[m.model], 0
	for other := range all {
		behind += other.behind
	}
	// What was let in just now may not have its slot yet.
	free := min(room.Free, room.Slots-behind) - reserved(room.Slots)
	share := (max(free, 0) + behind + len(all) - 1) / len(all)
	n := max(0, min(want, free, share-m.behind))
	m.behind += n
	return n
}

// left takes a line of m out of the background.
func (g *gate) left(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.behind--
}

// reserved is how many slots stay free for those who wait for their answers.
func reserved(slots int) int {
	if slots <= 1 {
		return 0
	}
	return max(1, slots/8)
}
