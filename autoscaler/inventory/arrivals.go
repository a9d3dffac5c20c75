package inventory

import (
	"math"
	"time"
)

const (
	// gapBuckets is the number of buckets. Each is a quarter of an octave wide, from a second to twelve days; shorter
	// and longer gaps are in the first and last.
	gapBuckets = 80
	// gapHalfLife is the age at which a gap counts half.
	gapHalfLife = 24 * time.Hour
	// gapsKnown is the weight of gaps that a forecast needs.
	gapsKnown = 1.5
)

// Arrivals is a histogram of a function's idle times, from the end of one busy time to the next request. Older ones
// count less. The zero value is empty.
type Arrivals struct {
	// Count and Seconds are the number of gaps in each bucket, and their sum.
	Count, Seconds [gapBuckets]float32
	// At is when the last gap ended.
	At time.Time
}

// Arrived learns that a request came at now after a gap.
func (e Experience) Arrived(gap time.Duration, now time.Time) Experience {
	a := &e.Arrivals
	if gap <= 0 {
		return e
	}
	if passed := now.Sub(a.At); passed > 0 && !a.At.IsZero() {
		keep := float32(math.Exp2(-passed.Hours() / gapHalfLife.Hours()))
		for k := range a.Count {
			a.Count[k] *= keep
			a.Seconds[k] *= keep
		}
	}
	a.At = now
	k := gapBucket(gap.Seconds())
	a.Count[k]++
	a.Seconds[k] += float32(gap.Seconds())
	return e
}

// Forecast returns the expected time until the next request of a function that had none for idle. known is false if too
// few gaps were at least that long.
func (a *Arrivals) Forecast(idle time.Duration) (until time.Duration, known bool) {
	t := max(0, idle.Seconds())
	var weight, sum float64
	for k := gapBucket(t); k < gapBuckets; k++ {
		n := float64(a.Count[k])
		if n == 0 {
			continue
		}
		left := float64(a.Seconds[k])/n - t
		if left <= 0 { // the mean of the bucket has passed: only its rest is left
			low, high := gapBounds(k)
			n *= max(0, high-t) / (high - low)
			left = max(0, high-t) / 2
		}
		weight, sum = weight+n, sum+n*left
	}
	if weight < gapsKnown {
		return 0, false
	}
	return time.Duration(sum / weight * float64(time.Second)), true
}

// gapsTold is the weight of gaps that a chance needs.
const gapsTold = 4

// Chance returns the probability that the next request comes before limit, for a function that had none for idle. known
// is false if too few gaps were at least as long as idle.
func (a *Arrivals) Chance(idle, limit time.Duration) (chance float64, known bool) {
	t, u := max(0, idle.Seconds()), limit.Seconds()
	var weight, within float64
	for k := gapBucket(t); k < gapBuckets; k++ {
		low, high := gapBounds(k)
		from := max(t, low)
		if from >= high {
			continue
		}
		n := float64(a.Count[k]) / (high - low)
		weight += n * (high - from)
		within += n * max(0, min(u, high)-from)
	}
	if weight < gapsTold {
		return 0, false
	}
	return within / weight, true
}

// Gap returns the mean gap; known is false if there were too few.
func (a *Arrivals) Gap() (mean time.Duration, known bool) { return a.Forecast(0) }

func gapBucket(seconds float64) int {
	if seconds < 1 {
		return 0
	}
	return min(int(4*math.Log2(seconds)), gapBuckets-1)
}

// gapBounds returns the bounds of a bucket in seconds.
func gapBounds(k int) (low, high float64) {
	if k > 0 {
		low = math.Exp2(float64(k) / 4)
	}
	return low, math.Exp2(float64(k+1) / 4)
}
