// Package tombstone remembers instances that ended, so that a late report of one doesn't bring it back. It is for one
// goroutine, or for those who hold its owner's mutex.
package tombstone

import (
	"cmp"
	"math"
	"slices"
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

// Stone is one of a set, as it is written down.
type Stone struct {
	ID     api.InstanceID
	Seq    uint64
	Until  time.Time
	Before bool // of the older ones, which are forgotten first
}

// All are those of the set, by ID.
func (s *Set) All() []Stone {
	all := make([]Stone, 0, len(s.now)+len(s.before))
	for id, g := range s.before {
		all = append(all, Stone{id, g.seq, g.until, true})
	}
	for id, g := range s.now {
		all = append(all, Stone{id, g.seq, g.until, false})
	}
	slices.SortFunc(all, func(a, b Stone) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// SetOf is the set that has these.
func SetOf(all []Stone) (s Set) {
	for _, g := range all {
		of := &s.now
		if g.Before {
			of = &s.before
		}
		if *of == nil {
			*of = make(map[api.InstanceID]stone)
		}
		(*of)[g.ID] = stone{g.Seq, g.Until}
	}
	return s
}
