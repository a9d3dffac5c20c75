package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api/control"
)

// While requests wait, the slots are shared between the clients that run or wait: a share is limit/active slots, rounded
// up. Within a priority, a client that has its share gets no further slot while one below its share waits. A request of
// several sequences counts as so many slots. A client above its share gives way ([Gate.GivesWay]).
const aboveFor = 10 * time.Second

// share returns the number of slots in a share.
func (q *turns) share() int { return (q.limit + q.active - 1) / max(q.active, 1) }

// slots returns how many slots a request counts as: no more than there are.
func (q *turns) slots(t control.Turn) int { return min(max(t.Sequences, 1), q.limit) }

// end counts a request that ran as one that runs no longer.
func (q *turns) end(t control.Turn) { q.clients[t.Client].running -= q.slots(t) }

// GivesWay reports whether a request that runs is to give its slot to one that waits: its client has more than its share,
// and one of a client below its share has waited for aboveFor. Each that waits is given one slot.
func (g *Gate) GivesWay(t control.Turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := &g.turns
	share := q.share()
	for _, w := range q.waiting {
		if !w.given && w.Priority >= t.Priority && q.clients[t.Client].running > share && q.clients[w.Client].running < share && time.Since(w.entered) >= aboveFor {
			w.given = true
			return true
		}
	}
	return false
}
