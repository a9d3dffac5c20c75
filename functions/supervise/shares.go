package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/fair"
)

// slots returns how many slots a request counts as in its client's share: its sequences, and no more than there are.
func (g *Gate) slots(t control.Turn) int { return min(max(t.Sequences, 1), g.limit) }

// below returns the condition that a request's client has less than its share of the slots. g.mu is held.
func (g *Gate) below() func(*fair.Item) bool {
	share := g.shares.Share(g.limit)
	return func(i *fair.Item) bool { return g.shares.Slots(i.Client) < share }
}

// first returns the request whose turn it is. One waits.
func (g *Gate) first() *turn {
	return g.turns.FirstOf(func(*fair.Item) bool { return true }, g.below(), false).Of.(*turn)
}

// GivesWay reports whether a request that runs is to give its slot to one that waits: its client has more than its share,
// and one of a client below its share has waited for [fair.GivesWayAfter]. begins is how long the one that runs took to begin
// its answer. Each that waits is given one slot.
func (g *Gate) GivesWay(t control.Turn, begins time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shares.Slots(client(t)) <= g.shares.Share(g.limit) {
		return false
	}
	below := g.below()
	i := g.turns.FirstOf(func(i *fair.Item) bool {
		w := i.Of.(*turn)
		return !w.given && w.Priority >= t.Priority && below(i) && time.Since(w.entered) >= fair.GivesWayAfter(begins)
	}, nil, true)
	if i != nil {
		i.Of.(*turn).given = true
	}
	return i != nil
}
