package fair

import "time"

// MostGivesWay is the most that [GivesWayAfter] returns.
const MostGivesWay = 10 * time.Second

// GivesWayAfter is how long a request of a client below its share waits before a stream of another client gives its slot up:
// four times what the stream took to begin, at least a second. So beginning again costs a fifth of the time.
func GivesWayAfter(begins time.Duration) time.Duration {
	return min(max(4*begins, time.Second), MostGivesWay)
}

// Shares divides slots equally between the clients C that have requests, waiting or running. A client that has its share
// gets no further slot while one below its share waits. A mutex of its owner guards it. The zero value has no clients.
type Shares[C comparable] struct{ clients map[C]shared }

type shared struct{ waiting, slots int }

// Add adds to the numbers of a client: the requests that wait, and the slots that its running requests have.
func (s *Shares[C]) Add(client C, waiting, slots int) {
	c := s.clients[client]
	if c.waiting, c.slots = c.waiting+waiting, c.slots+slots; c == (shared{}) {
		delete(s.clients, client)
		return
	}
	if s.clients == nil {
		s.clients = make(map[C]shared)
	}
	s.clients[client] = c
}

// Share returns the number of slots in a share of all slots, rounded up.
func (s *Shares[C]) Share(slots int) int {
	n := max(len(s.clients), 1)
	return (slots + n - 1) / n
}

// Slots returns the number of slots that a client has.
func (s *Shares[C]) Slots(client C) int { return s.clients[client].slots }

// Clients returns the number of clients.
func (s *Shares[C]) Clients() int { return len(s.clients) }
