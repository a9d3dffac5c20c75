// Package choose decides which clusters get the demand of a function that several
// of them serve. It is pure.
//
// The rules of [Split], in order:
//
//  1. A cluster that can't have the function, or is left out, gets nothing.
//  2. Clusters are ordered by the expected time to first token there: the way to the cluster,
//     and what it says of its wake or start; where it says nothing, a wake takes [UnknownWake] and a start
//     [UnknownStart]. Times that are within [Near] of one another are the same. Then the one with the smaller share of its places in use comes first,
//     then the cheaper one, then the nearer one, then the one whose name comes first.
//  3. The first one gets as much of the demand as it can have awake; the next one the rest, where another
//     instance would be there before those of the first have worked it off.
//  4. Whoever had the demand before keeps it as long as it is not much worse ([Stay]): two clusters that are alike
//     must not take turns in waking.
package choose

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Times of the rules.
const (
	UnknownWake  = 5 * time.Second
	UnknownStart = time.Minute
	// Near is how much two expected times may differ and be the same.
	Near = api.SameWay
	// Stay is how much sooner another cluster must have the first token to get the demand of one that has it.
	Stay = 2 * time.Second
)

// Cluster is one cluster as it stands for one function.
type Cluster struct {
	Name string
	// State is that of the instance there that takes a request soonest.
	State api.State
	// Expected is the time until an instance is awake, as the cluster says; 0: it does not know, or one is.
	Expected time.Duration
	// Way is the time of a message there and back.
	Way time.Duration
	// Running of all Slots are in use, of instances that are awake.
	Running, Slots int
	// Concurrency is how many requests one instance takes, MaxScale how many instances there may be; 0: unbounded.
	Concurrency, MaxScale int
	Cost                  float64
	// Out says that it gets nothing: it failed, it is leaving, or the caller must not be seen there.
	Out bool
	// Had says that it had demand the last time.
	Had bool
}

// FirstToken is the expected time to the first token of a request that is sent there now.
func (c Cluster) FirstToken() time.Duration {
	switch {
	case c.State == api.Awake:
		return c.Way
	case c.Expected > 0:
		return c.Way + c.Expected
	case c.State == api.Asleep, c.State == api.Draining:
		return c.Way + UnknownWake
	}
	return c.Way + UnknownStart
}

// Soonest is the state of that instance which takes a request soonest, and the time until it is awake; 0: nobody knows, or it is. Without one that
// is awake, asleep, or on its way there the state is gone.
func Soonest(list []api.InstanceStatus, now time.Time) (state api.State, expected time.Duration) {
	order := []api.State{api.Awake, api.Starting, api.Asleep, api.Draining}
	state, best := api.Gone, len(order)
	for _, st := range list {
		at := slices.Index(order, st.State)
		if at < 0 || at >= best {
			continue
		}
		best = at
		switch state, expected = st.State, 0; state {
		case api.Starting:
			expected = max(st.LoadTime-now.Sub(st.Since), 0)
		case api.Asleep, api.Draining: // it goes to sleep, and then it can be woken
			expected = st.WakeTime
		default:
		}
	}
	return state, expected
}

// share is the part of the slots that is in use.
func (c Cluster) share() float64 {
	if c.Slots == 0 {
		return 0
	}
	return float64(c.Running) / float64(c.Slots)
}

// room is how many requests can run there at once, with all instances awake; -1: unbounded.
func (c Cluster) room() int {
	if c.MaxScale == 0 {
		return -1
	}
	return max(c.MaxScale*max(c.Concurrency, 1)-c.Running, 0)
}

// Order sorts clusters: the one that should have the next request first. It drops those that get none.
func Order(clusters []Cluster) []Cluster {
	list := slices.DeleteFunc(slices.Clone(clusters), func(c Cluster) bool { return c.Out })
	slices.SortFunc(list, func(a, b Cluster) int { return cmp.Compare(a.rank(), b.rank()) })
	// Those that are near the first of a run are as good as it: they are ordered by what else counts.
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].rank()-list[from].rank() <= Near {
			to++
		}
		slices.SortFunc(list[from:to], func(a, b Cluster) int {
			return cmp.Or(cmp.Compare(a.share(), b.share()), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Way, b.Way), cmp.Compare(a.Name, b.Name))
		})
		from = to
	}
	return list
}

// rank is the time that a cluster is ordered by.
func (c Cluster) rank() time.Duration {
	if c.Had && c.State != api.Awake {
		return max(c.FirstToken()-Stay, c.Way)
	}
	return c.FirstToken()
}

// Part is the demand that a cluster gets.
type Part struct {
	Cluster string
	Waiting int
}

// Split divides waiting requests among clusters, each of which takes a request for about took; 0: nobody knows.
// The parts are in order; together they are waiting, or less where no cluster has room for all.
func Split(clusters []Cluster, waiting int, took time.Duration) []Part {
	var parts []Part
	list := Order(clusters)
	for n, c := range list {
		if waiting == 0 {
			break
		}
		take := waiting
		if n+1 < len(list) {
			take = min(take, c.before(list[n+1].FirstToken(), took))
		}
		if room := c.room(); room >= 0 {
			take = min(take, room)
		}
		if take > 0 {
			parts = append(parts, Part{c.Name, take})
			waiting -= take
		}
	}
	if waiting > 0 && len(parts) > 0 { // nobody else is sooner
		parts[0].Waiting += waiting
	}
	return parts
}

// before is how many requests c has begun by the time that another one has its first token.
func (c Cluster) before(other, took time.Duration) int {
	slots := max(c.Slots-c.Running, 0)
	if c.State != api.Awake {
		slots = max(c.Concurrency, 1)
	}
	begins := c.FirstToken()
	if took <= 0 || other <= begins {
		return max(slots, 1)
	}
	rounds := int((other-begins)/took) + 1
	return max(slots*rounds, 1)
}
