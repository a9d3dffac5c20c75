// Package tombstone remembers instances that ended, so that a late report of one doesn't bring it back. It is for one
// goroutine, or for those who hold its owner's mutex.
package tombstone

import (
	"math"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Final is the last report there can be: whatever an instance says later, it has ended.
const Final = math.MaxUint64

// most is how many tombstones there are before the older ones are forgotten: between most and twice as many are kept.
const most = 4096

// Set is a set of tombstones. The zero value is empty.
type Set struct{ now, before map[api.InstanceID]stone }

type stone struct {
	seq   uint64
	until time.Time
}

// Add has the instance dead as of its report seq. The tombstone counts until a time; zero: for as long as it is remembered.
func (s *Set) Add(id api.InstanceID, seq uint64, until time.Time) {
	if len(s.now) == most {
		s.now, s.before = nil, s.now
	}
	if s.now == nil {
		s.now = make(map[api.InstanceID]stone)
	}
	s.now[id] = stone{seq, until}
}

// Holds says whether the instance was dead by its report seq, at the time now.
func (s *Set) Holds(id api.InstanceID, seq uint64, now time.Time) bool {
	g, found := s.now[id]
	if !found {
		g, found = s.before[id]
	}
	return found && seq <= g.seq && (g.until.IsZero() || now.Before(g.until))
}
