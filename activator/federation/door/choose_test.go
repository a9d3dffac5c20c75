package door

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

const ms = time.Millisecond

func namesOf(list []candidate) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		clusters []candidate
		want     string
	}{
		"awake, asleep, unloaded": {[]candidate{{Name: "u", State: api.Gone}, {Name: "s", State: api.Asleep}, {Name: "a", State: api.Awake, Way: 200 * ms}}, "a s u"},
		"what they say of their wakes": {[]candidate{
			{Name: "slow", State: api.Asleep, Expected: 3 * time.Second}, {Name: "starts", State: api.Starting, Expected: time.Second}, {Name: "fast", State: api.Asleep, Expected: 300 * ms},
		}, "fast starts slow"},
		"an unloaded one that is quick before a sleeper": {[]candidate{{Name: "asleep", State: api.Asleep}, {Name: "quick", State: api.Gone, Expected: time.Second}}, "quick asleep"},
		"load": {[]candidate{
			{Name: "busy", State: api.Awake, Slots: 4, Running: 3}, {Name: "less", State: api.Awake, Slots: 8, Running: 4, Way: 10 * ms, Cost: 9},
		}, "less busy"},
		"cost, then the way":  {[]candidate{{Name: "dear", State: api.Awake, Cost: 2}, {Name: "far", State: api.Awake, Cost: 1, Way: 9 * ms}, {Name: "near", State: api.Awake, Cost: 1, Way: 2 * ms}}, "near far dear"},
		"far is later":        {[]candidate{{Name: "cheap", State: api.Awake, Way: 90 * ms}, {Name: "dear", State: api.Awake, Cost: 5, Way: ms}}, "dear cheap"},
		"who is out":          {[]candidate{{Name: "out", State: api.Awake, Out: true}, {Name: "in", State: api.Gone}}, "in"},
		"who had it keeps it": {[]candidate{{Name: "new", State: api.Asleep, Expected: time.Second}, {Name: "had", State: api.Asleep, Expected: 2 * time.Second, Had: true}}, "had new"},
		"not where it is much worse": {[]candidate{
			{Name: "had", State: api.Gone, Had: true}, {Name: "awake", State: api.Awake},
		}, "awake had"},
	} {
		if got := namesOf(orderCandidates(c.clusters)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct {
		clusters []candidate
		waiting  int
		want     string
	}{
		"nobody":         {nil, 3, "[]"},
		"nothing":        {[]candidate{{Name: "a", State: api.Awake}}, 0, "[]"},
		"one has it all": {[]candidate{{Name: "a", State: api.Asleep, Concurrency: 2}}, 7, "[{a 7}]"},
		"the other wakes where the first would be too slow": {[]candidate{
			{Name: "a", State: api.Awake, Slots: 2, Concurrency: 2, MaxScale: 1}, {Name: "b", State: api.Asleep, Expected: time.Second, Concurrency: 2},
		}, 12, "[{a 2} {b 10}]"},
		"the rest goes to the last, however late": {[]candidate{
			{Name: "a", State: api.Awake, Slots: 8, Concurrency: 8}, {Name: "b", State: api.Gone, Expected: time.Minute, Concurrency: 2},
		}, 100, "[{a 8} {b 92}]"},
		"more than both can have": {[]candidate{
			{Name: "a", State: api.Awake, Slots: 1, Concurrency: 1, MaxScale: 1}, {Name: "b", State: api.Awake, Slots: 1, Concurrency: 1, MaxScale: 1},
		}, 5, "[{a 4} {b 1}]"},
	} {
		if got := fmt.Sprint(splitDemand(c.clusters, c.waiting)); got != c.want {
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
		var list []candidate
		in := 0
		for n := range r.IntN(8) {
			c := candidate{Name: fmt.Sprint("c", n), State: states[r.IntN(len(states))], Expected: time.Duration(r.IntN(3)) * time.Second, Way: time.Duration(r.IntN(80)) * ms,
				Slots: r.IntN(9), Concurrency: r.IntN(5), MaxScale: r.IntN(3), Cost: float64(r.IntN(3)), Out: r.IntN(4) == 0, Had: r.IntN(3) == 0}
			c.Running = r.IntN(c.Slots + 1)
			if !c.Out {
				in++
			}
			list = append(list, c)
		}
		waiting := r.IntN(50)
		parts := splitDemand(list, waiting)
		sum := 0
		for _, p := range parts {
			sum += p.waiting
			if p.waiting <= 0 || list[slices.IndexFunc(list, func(c candidate) bool { return c.Name == p.cluster })].Out {
				t.Errorf("seed %d: %+v of %+v", seed, p, list)
			}
		}
		if sum > waiting || sum < waiting && len(parts) > 0 {
			t.Errorf("seed %d: %d of %d waiting went to %+v", seed, sum, waiting, parts)
		}
		if in == 0 && len(parts) > 0 {
			t.Errorf("seed %d: parts without clusters: %+v", seed, parts)
		}
		before := namesOf(orderCandidates(list))
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if after := namesOf(orderCandidates(list)); after != before {
			t.Errorf("seed %d: %s, and in another order %s", seed, before, after)
		}
	}
}
