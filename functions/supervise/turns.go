package supervise

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// turns orders the requests that wait for a slot of the instance, whichever activators they come from:
//
//  1. A higher priority goes first, but waiting counts too: [control.Aging] is worth one step.
//  2. Within a priority, a client below its share of the slots goes before one that has it. Then the client that was
//     served the least goes first, by what its requests cost here. A client that returns from a pause starts level with
//     the least-served one.
//  3. A client's own requests go in the order of their arrival.
//
// It reads no clock and starts no goroutine. A mutex of its owner guards it. The number of waiting requests is small:
// an activator sends an instance no more requests than it has slots. So each choice looks at all of them.
type turns struct {
	waiting []*turn
	clients map[uint64]*served
	floor   float64 // the cost of the client served last, before that request
	limit   int     // of the slots; 0: they are not shared
	active  int     // clients with requests that wait or run
}

// served counts the requests of one client.
type served struct {
	cost    float64
	pending int // requests that wait or run
	running int // slots of those that run
}

// turn is one request that waits.
type turn struct {
	control.Turn
	arrived time.Time
	entered time.Time // when it began to wait here
	given   bool      // another one gives way for it
	// admitted is closed once base or refused is set. The goroutine that takes the turn out of waiting closes it.
	admitted chan struct{}
	base     string
	refused  *api.Error
}

// maxClients bounds the clients without a request that are remembered.
const maxClients = 4096

// arrive counts a request of a client, which waits or runs until leave.
func (q *turns) arrive(client uint64) {
	c := q.clients[client]
	if c == nil {
		if q.clients == nil {
			q.clients = make(map[uint64]*served)
		}
		c = &served{}
		q.clients[client] = c
	}
	if c.pending++; c.pending == 1 {
		c.cost = max(c.cost, q.least())
		q.active++
	}
}

// least returns the cost of the least-served client that waits, or else of the one served last.
func (q *turns) least() float64 {
	if len(q.waiting) == 0 {
		return q.floor
	}
	least := q.clients[q.waiting[0].Client].cost
	for _, w := range q.waiting[1:] {
		least = min(least, q.clients[w.Client].cost)
	}
	return least
}

// charge charges a client for a request that gets a slot.
func (q *turns) charge(t control.Turn) {
	c := q.clients[t.Client]
	q.floor = max(q.floor, c.cost)
	c.cost += t.Cost
	c.running += q.slots(t)
}

// leave ends a request; correct is its cost beyond the charge.
func (q *turns) leave(client uint64, correct float64) {
	c := q.clients[client]
	c.cost += correct
	if c.pending--; c.pending > 0 {
		return
	}
	q.active--
	if c.cost <= q.floor || len(q.clients) > maxClients {
		delete(q.clients, client)
	}
}

// next returns the request whose turn it is; nil: none waits. It stays in the queue.
func (q *turns) next() *turn {
	first := map[int]*turn{} // by priority
	for _, w := range q.waiting {
		if f := first[w.Priority]; f == nil || q.before(w, f) {
			first[w.Priority] = w
		}
	}
	var next *turn
	for _, w := range first {
		if next == nil || w.due().Before(next.due()) || w.due().Equal(next.due()) && w.Priority > next.Priority {
			next = w
		}
	}
	return next
}

// due is when the request arrived, shifted by its priority.
func (t *turn) due() time.Time {
	return t.arrived.Add(-control.Aging * time.Duration(t.Priority))
}

// before orders two requests of one priority.
func (q *turns) before(a, b *turn) bool {
	if x, y, share := q.clients[a.Client], q.clients[b.Client], q.share(); x != y {
		if below := x.running < share; below != (y.running < share) {
			return below
		}
		if x.cost != y.cost {
			return x.cost < y.cost
		}
	}
	return a.arrived.Before(b.arrived)
}

// add adds a request that waits.
func (q *turns) add(w *turn) {
	q.arrive(w.Client)
	q.waiting = append(q.waiting, w)
}

// admit charges a request that no longer waits and gets a slot.
func (q *turns) admit(w *turn) {
	q.charge(w.Turn)
	q.drop(w)
}

// remove ends a request that waits; false: it no longer does.
func (q *turns) remove(w *turn) bool {
	waits := slices.Contains(q.waiting, w)
	if waits {
		q.drop(w)
		q.leave(w.Client, 0)
	}
	return waits
}

func (q *turns) drop(w *turn) {
	q.waiting = slices.DeleteFunc(q.waiting, func(o *turn) bool { return o == w })
}
