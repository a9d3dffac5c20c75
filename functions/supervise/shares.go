package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/fair"
)

// shares divides the slots between the clients that run or wait. A share is the limit by their number, rounded up. Within
// a priority, a client that has its share gets no further slot while one below its share waits. A request of several
// sequences counts as so many slots. A client above its share gives way ([Gate.GivesWay]).
type shares struct {
	limit   int
	clients map[fair.Client]*shared
}

// shared counts the slots that one client's requests have, and its requests that wait or run.
type shared struct{ slots, requests int }

const aboveFor = 10 * time.Second

// come counts a request that waits or runs from now on, or no longer if n is -1.
func (s *shares) come(t control.Turn, n int) {
	c := s.clients[client(t)]
	if c == nil {
		if s.clients == nil {
			s.clients = make(map[fair.Client]*shared)
		}
		c = &shared{}
		s.clients[client(t)] = c
	}
	if c.requests += n; c.requests == 0 {
		delete(s.clients, client(t))
	}
}

// use counts the slots of a request that begins to run, or ends if n is -1.
func (s *shares) use(t control.Turn, n int) {
	s.clients[client(t)].slots += n * min(max(t.Sequences, 1), s.limit)
}

// share returns the number of slots in a share.
func (s *shares) share() int { return (s.limit + len(s.clients) - 1) / max(len(s.clients), 1) }

// first returns the request whose turn it is. One waits.
func (g *Gate) first() *turn {
	share := g.shares.share()
	return g.turns.FirstOf(func(*fair.Item) bool { return true }, func(i *fair.Item) bool { return g.shares.clients[i.Client].slots < share }, false).Of.(*turn)
}

// GivesWay reports whether a request that runs is to give its slot to one that waits: its client has more than its share,
// and one of a client below its share has waited for aboveFor. Each that waits is given one slot.
func (g *Gate) GivesWay(t control.Turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	share := g.shares.share()
	if c := g.shares.clients[client(t)]; c == nil || c.slots <= share {
		return false
	}
	i := g.turns.FirstOf(func(i *fair.Item) bool {
		w := i.Of.(*turn)
		return !w.given && w.Priority >= t.Priority && g.shares.clients[i.Client].slots < share && time.Since(w.entered) >= aboveFor
	}, nil, true)
	if i != nil {
		i.Of.(*turn).given = true
	}
	return i != nil
}
