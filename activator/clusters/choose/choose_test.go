package choose_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/clusters/choose"
	"github.com/rouse-dev/rouse/api"
)

const ms = time.Millisecond

func names(list []choose.Cluster) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		clusters []choose.Cluster
		want     string
	}{
		"awake, asleep, unloaded": {[]choose.Cluster{{Name: "u", State: api.Gone}, {Name: "s", State: api.Asleep}, {Name: "a", State: api.Awake, Way: 200 * ms}}, "a s u"},
		"what they say of their wakes": {[]choose.Cluster{
			{Name: "slow", State: api.Asleep, Expected: 3 * time.Second}, {Name: "starts", State: api.Starting, Expected: time.Second}, {Name: "fast", State: api.Asleep, Expected: 300 * ms},
		}, "fast starts slow"},
		"an unloaded one that is quick before a sleeper": {[]choose.Cluster{{Name: "asleep", State: api.Asleep}, {Name: "quick", State: api.Gone, Expected: time.Second}}, "quick asleep"},
		"load": {[]choose.Cluster{
			{Name: "busy", State: api.Awake, Slots: 4, Running: 3}, {Name: "less", State: api.Awake, Slots: 8, Running: 4, Way: 10 * ms, Cost: 9},
		}, "less busy"},
		"cost, then the way":  {[]choose.Cluster{{Name: "dear", State: api.Awake, Cost: 2}, {Name: "far", State: api.Awake, Cost: 1, Way: 9 * ms}, {Name: "near", State: api.Awake, Cost: 1, Way: 2 * ms}}, "near far dear"},
		"far is later":        {[]choose.Cluster{{Name: "cheap", State: api.Awake, Way: 90 * ms}, {Name: "dear", State: api.Awake, Cost: 5, Way: ms}}, "dear cheap"},
		"who is out":          {[]choose.Cluster{{Name: "out", State: api.Awake, Out: true}, {Name: "in", State: api.Gone}}, "in"},
		"who had it keeps it": {[]choose.Cluster{{Name: "new", State: api.Asleep, Expected: time.Second}, {Name: "had", State: api.Asleep, Expected: 2 * time.Second, Had: true}}, "had new"},
		"not where it is much worse": {[]choose.Cluster{
			{Name: "had", State: api.Gone, Had: true}, {Name: "awake", State: api.Awake},
		}, "awake had"},
	} {
		if got := names(choose.Order(c.clusters)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct {
		clusters []choose.Cluster
		waiting  int
		took     time.Duration
		want     string
	}{
		"nobody":         {nil, 3, 0, "[]"},
		"nothing":        {[]choose.Cluster{{Name: "a", State: api.Awake}}, 0, 0, "[]"},
		"one has it all": {[]choose.Cluster{{Name: "a", State: api.Asleep, Concurrency: 2}}, 7, 0, "[{a 7}]"},
		"the other wakes where the first would be too slow": {[]choose.Cluster{
			{Name: "a", State: api.Awake, Slots: 2, Concurrency: 2, MaxScale: 1}, {Name: "b", State: api.Asleep, Expected: time.Second, Concurrency: 2},
		}, 12, time.Second, "[{a 2} {b 10}]"},
		"and not where the first works it off": {[]choose.Cluster{
			{Name: "a", State: api.Awake, Slots: 8, Concurrency: 8}, {Name: "b", State: api.Gone, Expected: time.Minute, Concurrency: 2},
		}, 100, time.Second, "[{a 100}]"},
		"more than both can have": {[]choose.Cluster{
			{Name: "a", State: api.Awake, Slots: 1, Concurrency: 1, MaxScale: 1}, {Name: "b", State: api.Awake, Slots: 1, Concurrency: 1, MaxScale: 1},
		}, 5, 0, "[{a 4} {b 1}]"},
	} {
		if got := fmt.Sprint(choose.Split(c.clusters, c.waiting, c.took)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestRandom: all demand is assigned if any cluster can take it, none to excluded clusters, and the order of the
// input does not matter.
func TestRandom(t *testing.T) {
	states := []api.State{api.Awake, api.Asleep, api.Starting, api.Gone, api.Draining, api.Unhealthy}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var list []choose.Cluster
		in := 0
		for n := range r.IntN(8) {
			c := choose.Cluster{Name: fmt.Sprint("c", n), State: states[r.IntN(len(states))], Expected: time.Duration(r.IntN(3)) * time.Second, Way: time.Duration(r.IntN(80)) * ms,
				Slots: r.IntN(9), Concurrency: r.IntN(5), MaxScale: r.IntN(3), Cost: float64(r.IntN(3)), Out: r.IntN(4) == 0, Had: r.IntN(3) == 0}
			c.Running = r.IntN(c.Slots + 1)
			if !c.Out {
				in++
			}
			list = append(list, c)
		}
		waiting := r.IntN(50)
		parts := choose.Split(list, waiting, time.Duration(r.IntN(2000))*ms)
		sum := 0
		for _, p := range parts {
			sum += p.Waiting
			if p.Waiting <= 0 || list[slices.IndexFunc(list, func(c choose.Cluster) bool { return c.Name == p.Cluster })].Out {
				t.Errorf("seed %d: %+v of %+v", seed, p, list)
			}
		}
		if sum > waiting || sum < waiting && len(parts) > 0 {
			t.Errorf("seed %d: %d of %d waiting went to %+v", seed, sum, waiting, parts)
		}
		if in == 0 && len(parts) > 0 {
			t.Errorf("seed %d: parts without clusters: %+v", seed, parts)
		}
		before := names(choose.Order(list))
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if after := names(choose.Order(list)); after != before {
			t.Errorf("seed %d: %s, and in another order %s", seed, before, after)
		}
	}
}

// TestSoonest: an instance on its way to sleep is not gone, and comes after those that are closer to serving.
func TestSoonest(t *testing.T) {
	draining, asleep := api.InstanceStatus{State: api.Draining, WakeTime: 3 * time.Second}, api.InstanceStatus{State: api.Asleep, WakeTime: time.Second}
	for _, tt := range []struct {
		list     []api.InstanceStatus
		state    api.State
		expected time.Duration
	}{
		{nil, api.Gone, 0},
		{[]api.InstanceStatus{{State: api.Unhealthy}}, api.Gone, 0},
		{[]api.InstanceStatus{draining}, api.Draining, 3 * time.Second},
		{[]api.InstanceStatus{draining, asleep}, api.Asleep, time.Second},
		{[]api.InstanceStatus{asleep, draining, {State: api.Awake}}, api.Awake, 0},
	} {
		if state, expected := choose.Soonest(tt.list, time.Now()); state != tt.state || expected != tt.expected {
			t.Errorf("%+v: %s in %s, want %s in %s", tt.list, state, expected, tt.state, tt.expected)
		}
	}
}
