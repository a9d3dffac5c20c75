package batch

import (
	"sync"

	"github.com/rouse-dev/rouse/activator"
)

// gate divides what is left over of a model among the batches that have lines for it: evenly, so that one that came first does not
// keep all of it. It is safe for many goroutines. The zero value is empty.
type gate struct {
	mu     sync.Mutex // guards models
	models map[string]*crowd
}

// crowd is the batches that have lines for a model, and the lines of theirs that are in the background.
type crowd struct{ batches, flying int }

// join counts a batch in, and leave out.
func (g *gate) join(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.models == nil {
		g.models = map[string]*crowd{}
	}
	if g.models[model] == nil {
		g.models[model] = &crowd{}
	}
	g.models[model].batches++
}

func (g *gate) leave(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.models[model]
	if c.batches--; c.batches == 0 {
		delete(g.models, model)
	}
}

// enter lets as many more lines of a batch in as it may have in the background, of which mine are, up to want.
func (g *gate) enter(model string, room activator.Room, mine, want int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.models[model]
	// What was let in just now may not have its slot yet.
	free := min(room.Free, room.Slots-c.flying) - reserved(room.Slots)
	share := (max(free, 0) + c.flying + c.batches - 1) / c.batches
	n := max(0, min(want, free, share-mine))
	c.flying += n
	return n
}

// left takes n lines out.
func (g *gate) left(model string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.models[model].flying -= n
}

// reserved is how many slots stay free for those who wait for their answers.
func reserved(slots int) int {
	if slots <= 1 {
		return 0
	}
	return max(1, slots/8)
}
