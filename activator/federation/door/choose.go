package door

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

const (
	unknownWake  = 5 * time.Second
	unknownStart = time.Minute
	// stay is how much sooner another cluster must be.
	stay = 2 * time.Second
)

type candidate struct {
	Name string
	// State describes the instance that can accept a request soonest.
	State api.State
	// Expected is 0 if unknown, or an instance is awake.
	Expected time.Duration
	// Way is the round trip.
	Way            time.Duration
	Running, Slots int
	// A MaxScale of 0 is unbounded.
	Concurrency, MaxScale int
	Cost                  float64
	Out                   bool
	// Had means that it had demand the last time.
	Had bool
}

func (c candidate) firstToken() time.Duration {
	switch {
	case c.State == api.Awake:
		return c.Way
	case c.Expected > 0:
		return c.Way + c.Expected
	case c.State == api.Asleep, c.State == api.Draining:
		return c.Way + unknownWake
	}
	return c.Way + unknownStart
}

func (c candidate) share() float64 {
	if c.Slots == 0 {
		return 0
	}
	return float64(c.Running) / float64(c.Slots)
}

// room returns how many requests can run there with all instances awake; -1: unbounded.
func (c candidate) room() int {
	if c.MaxScale == 0 {
		return -1
	}
	return max(c.MaxScale*max(c.Concurrency, 1)-c.Running, 0)
}

// orderCandidates sorts clusters by the time to the first token. Of times within route.SameWay, the smaller share of used
// slots comes first, then the cheaper, the nearer, and the first by name. A cluster that had demand keeps its place unless
// another is sooner by [stay]: two equal clusters must not take turns in waking.
func orderCandidates(clusters []candidate) []candidate {
	list := slices.DeleteFunc(slices.Clone(clusters), func(c candidate) bool { return c.Out })
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.rank(), b.rank()) })
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].rank()-list[from].rank() <= route.SameWay {
			to++
		}
		slices.SortFunc(list[from:to], func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.share(), b.share()), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Way, b.Way), cmp.Compare(a.Name, b.Name))
		})
		from = to
	}
	return list
}

func (c candidate) rank() time.Duration {
	if c.Had && c.State != api.Awake {
		return max(c.firstToken()-stay, c.Way)
	}
	return c.firstToken()
}

type assignment struct {
	cluster string
	waiting int
}

// splitDemand divides waiting requests in the order of [orderCandidates]: each cluster gets as many as it can begin soon,
// and the first one what is left.
func splitDemand(clusters []candidate, waiting int) []assignment {
	var parts []assignment
	list := orderCandidates(clusters)
	for n, c := range list {
		if waiting == 0 {
			break
		}
		take := waiting
		if n+1 < len(list) {
			take = min(take, c.begins())
		}
		if room := c.room(); room >= 0 {
			take = min(take, room)
		}
		if take > 0 {
			parts = append(parts, assignment{c.Name, take})
			waiting -= take
		}
	}
	if waiting > 0 && len(parts) > 0 {
		parts[0].waiting += waiting
	}
	return parts
}

func (c candidate) begins() int {
	if c.State != api.Awake {
		return max(c.Concurrency, 1)
	}
	return max(c.Slots-c.Running, 1)
}
