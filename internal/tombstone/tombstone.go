// Package tombstone remembers instances that ended, so that a late report does not bring one back. Its owner guards it.
package tombstone

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Final is the highest report number: no later report of the instance counts.
const Final = math.MaxUint64

// most is the size of a generation: between most and twice as many tombstones are kept.
const most = 4096

// Set is a set of tombstones. The zero value is empty.
type Set struct{ now, before map[api.InstanceID]stone }

type stone struct {
	seq   uint64
	until time.Time
}

// Add records that the instance ended as of its report seq. The tombstone expires at until, if that is not zero.
func (s *Set) Add(id api.InstanceID, seq uint64, until time.Time) {
	if len(s.now) == most {
		s.now, s.before = nil, s.now
	}
	if s.now == nil {
		s.now = make(map[api.InstanceID]stone)
	}
	s.now[id] = stone{seq, until}
}

// Holds reports whether the instance had ended by its report seq, at the time now.
func (s *Set) Holds(id api.InstanceID, seq uint64, now time.Time) bool {
	g, found := s.now[id]
	if !found {
		g, found = s.before[id]
	}
	return found && seq <= g.seq && (g.until.IsZero() || now.Before(g.until))
}

// Stone is a tombstone in serialized form.
type Stone struct {
	ID     api.InstanceID
	Seq    uint64
	Until  time.Time
	Before bool // of the older generation, which is dropped first
}

// All returns the tombstones of the set, sorted by ID.
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

// SetOf returns the set of these tombstones.
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
