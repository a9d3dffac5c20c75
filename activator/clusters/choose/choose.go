// Package choose divides a function's demand among the clusters that serve it. It is pure.
//
// The rules of [Split], in order:
//
// 1. A cluster that can't have the function, or is excluded, gets nothing.
//  2. Clusters are ordered by the expected time to the first token there: the way to the cluster plus its reported
//     time of a wake or start. If it reports none, a wake takes [UnknownWake] and a start [UnknownStart]. Times
//     within [Near] of one another count as equal. Then the smaller share of used slots comes first, then the
//     cheaper, the nearer, and the first by name.
//  3. The first one gets as much of the demand as it can have awake. The next one gets the rest, if an instance
//     there would be ready before the first ones have worked it off.
//  4. A cluster that had the demand before keeps it unless another is much better ([Stay]): two equal clusters must
//     not take turns in waking.
package choose

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Durations in the rules.
const (
	UnknownWake  = 5 * time.Second
	UnknownStart = time.Minute
	// Near is the largest difference between expected times that count as equal.
	Near = api.SameWay
	// Stay is how much sooner another cluster must have the first token to take over the demand.
	Stay = 2 * time.Second
)

// Cluster is one cluster's state for one function.
type Cluster struct {
	Name string
	// State is the state of the instance there that can accept a request soonest.
	State api.State
	// Expected is the time until an instance is awake, as reported; 0: unknown, or one is awake.
	Expected time.Duration
	// Way is the round-trip time to the cluster.
	Way time.Duration
	// Running is how many of the Slots of awake instances are in use.
	Running, Slots int
	// Concurrency is the number of slots of an instance; MaxScale bounds the instances; 0: unbounded.
	Concurrency, MaxScale int
	Cost                  float64
	// Out excludes the cluster: it failed, it is leaving, or it may not see the caller's requests.
	Out bool
	// Had means that it had demand the last time.
	Had bool
}

// FirstToken returns the expected time to the first token of a request that is sent there now.
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

// Soonest returns the state of the instance that can accept a request soonest, and the time until it is awake; 0:
// unknown, or it is awake. If no instance is awake, asleep, or between the two, the state is gone.
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
		case api.Asleep, api.Draining: // once asleep it can be woken
			expected = st.WakeTime
		default:
		}
	}
	return state, expected
}

func (c Cluster) share() float64 {
	if c.Slots == 0 {
		return 0
	}
	return float64(c.Running) / float64(c.Slots)
}

// room returns how many requests can run there with all instances awake; -1: unbounded.
func (c Cluster) room() int {
	if c.MaxScale == 0 {
		return -1
	}
	return max(c.MaxScale*max(c.Concurrency, 1)-c.Running, 0)
}

// Order sorts clusters, best first, and drops the excluded ones.
func Order(clusters []Cluster) []Cluster {
	list := slices.DeleteFunc(slices.Clone(clusters), func(c Cluster) bool { return c.Out })
	slices.SortFunc(list, func(a, b Cluster) int { return cmp.Compare(a.rank(), b.rank()) })
	// Clusters near the first of a run count as equal to it: the other criteria order them.
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

// rank returns the time that orders a cluster.
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

// Split divides waiting requests among clusters. took is how long a cluster takes for a request; 0: unknown. The
// parts are in order. Their sum is waiting, or 0 if there is no cluster to take any.
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
	if waiting > 0 && len(parts) > 0 { // no other cluster is sooner
		parts[0].Waiting += waiting
	}
	return parts
}

// before returns how many requests c has begun by the time that another cluster has its first token.
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
