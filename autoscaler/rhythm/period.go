package rhythm

import (
	"slices"
	"time"
)

// usualPeriods are common periods of jobs.
var usualPeriods = []time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

// foresee computes the next window. Its cost is bounded by the number of remembered visits; without a rhythm most visits have no other one a period before them, and
// little is examined.
func (r *Rhythm) foresee(pause, widest time.Duration) (best Window, known bool) {
	n := len(r.Visits)
	if n <= leastSupport {
		return best, false
	}
	now, oldest := r.Visits[n-1], r.Visits[0]
	for _, period := range r.periods() {
		if period <= pause || int64(period)*leastSupport > now-oldest+int64(widest) {
			continue
		}
		near := min(period/24, widest/2) // the allowed deviation from an exact period
		for k := n - 1; k >= 0 && r.Visits[k]+int64(period) > now+int64(near); k-- {
			w, found := r.follow(k, period, near)
			if !found || w.Until.Sub(w.From) > widest || r.chance(w) > mostChance || r.ended(r.Visits[k], w.Period, near) {
				continue
			}
			if !known || w.From.Before(best.From) && !same(w, best) || same(w, best) && w.Times > best.Times {
				best, known = w, true
			}
		}
	}
	return best, known
}

// same reports whether two windows are about the same visit.
func same(a, b Window) bool { return !a.From.After(b.Until) && !b.From.After(a.Until) }

// periods returns candidates: common periods, and those that the last visits suggest.
func (r *Rhythm) periods() []time.Duration {
	n := len(r.Visits)
	gaps := make([]int64, 0, mostSupport)
	for k := n - 1; k > 0 && len(gaps) < mostSupport; k-- {
		gaps = append(gaps, r.Visits[k]-r.Visits[k-1])
	}
	two := time.Duration(r.Visits[n-1] - r.Visits[n-3])
	last := time.Duration(gaps[0])
	slices.Sort(gaps)
	return append([]time.Duration{time.Duration(gaps[len(gaps)/2]), last, two}, usualPeriods...)
}

// follow looks for visits one, two and more periods before the kth, and returns the window one period after it.
func (r *Rhythm) follow(k int, period, near time.Duration) (w Window, found bool) {
	var back [mostSupport + 1]int64
	back[0] = r.Visits[k]
	times := 0
	for times < mostSupport {
		at, found := r.visitNear(back[times]-int64(period), int64(near))
		if !found {
			break
		}
		times++
		back[times] = at
	}
	if times < leastSupport {
		return w, false
	}
	exact := (back[0] - back[times]) / int64(times)
	first, last := int64(0), int64(0) // the range in which each of them predicts the next one, relative to the kth
	for j := range times + 1 {
		at := back[j] + int64(j)*exact - back[0]
		if j == 0 {
			first, last = at, at
		}
		first, last = min(first, at), max(last, at)
	}
	spread := time.Duration(last - first)
	at := time.Unix(0, back[0]+exact)
	return Window{
		From:   at.Add(time.Duration(first) - spread/4 - margin),
		Until:  at.Add(time.Duration(last) + spread/2 + 4*margin),
		Period: time.Duration(exact), Times: times,
	}, true
}

// cycles are the cycles of people's habits: a row of visits ends in the evening, or before a weekend.
var cycles = []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}

// ended reports whether the row of visits that includes the time at ended there in the last cycle, and in the one
// before if that is remembered. A row ended if there was a visit at this time of the cycle and none a period later.
func (r *Rhythm) ended(at int64, period, near time.Duration) bool {
	for _, cycle := range cycles {
		times := 0
		for n := int64(1); n <= 2 && period < cycle; n++ {
			then := at - n*int64(cycle)
			if _, was := r.visitNear(then, int64(near)); !was {
				break
			}
			if _, on := r.visitNear(then+int64(period), int64(near)); on {
				times = 0
				break
			}
			times++
		}
		if times > 0 {
			return true
		}
	}
	return false
}

// visitNear returns the visit that is closest to at, if it is within near.
func (r *Rhythm) visitNear(at, near int64) (visit int64, found bool) {
	k, _ := slices.BinarySearch(r.Visits, at)
	if k < len(r.Visits) && r.Visits[k]-at <= near {
		visit, found = r.Visits[k], true
	}
	if k > 0 && at-r.Visits[k-1] <= near && (!found || at-r.Visits[k-1] < visit-at) {
		visit, found = r.Visits[k-1], true
	}
	return visit, found
}

// chance returns the probability that a visit falls into w by chance, at the rate of the last visits.
func (r *Rhythm) chance(w Window) float64 {
	n := len(r.Visits)
	span := time.Duration(r.Visits[n-1] - r.Visits[0])
	return float64(n-1) * w.Until.Sub(w.From).Seconds() / max(1, span.Seconds())
}
