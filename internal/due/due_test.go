package due

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestQueue sets and removes things at random and compares the queue with a list of their times.
func TestQueue(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := rand.New(rand.NewPCG(1, 2))
	var q Queue[int]
	var places [20]Item[int]
	var times [20]time.Time
	for range 5000 {
		k := r.IntN(len(places))
		switch r.IntN(4) {
		case 0:
			times[k] = time.Time{}
			q.Set(&places[k], k, times[k])
		case 1:
			now := start.Add(time.Duration(r.IntN(100)) * time.Second)
			first := first(times[:])
			thing, found := q.Pop(now)
			if due := first >= 0 && !times[first].After(now); due != found || found && !times[thing].Equal(times[first]) {
				t.Fatalf("%d is taken (%t), want one that is due at %v", thing, found, times[first])
			}
			if found {
				times[thing] = time.Time{}
			}
		default:
			times[k] = start.Add(time.Duration(r.IntN(200)) * time.Second)
			q.Set(&places[k], k, times[k])
		}
		var want time.Time
		if first := first(times[:]); first >= 0 {
			want = times[first]
		}
		if got := q.First(); !got.Equal(want) || !places[k].At().Equal(times[k]) {
			t.Fatalf("the first is due at %s and %d at %s, want %s and %s", got, k, places[k].At(), want, times[k])
		}
	}
}

// first returns the index of the earliest time, -1 if none is set.
func first(times []time.Time) int {
	set := slices.DeleteFunc(slices.Clone(times), time.Time.IsZero)
	if len(set) == 0 {
		return -1
	}
	return slices.Index(times, slices.MinFunc(set, time.Time.Compare))
}
