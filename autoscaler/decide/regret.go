package decide

import (
	"cmp"
	"time"
)

// regret is lost time, in seconds; pace bounds its change per second while the search result is valid.
type regret struct{ v, pace float64 }

// compareRegrets compares regrets. The search result is valid as long as their order can't change.
func (p *plan) compareRegrets(a, b regret) int {
	if pace := a.pace + b.pace; pace > 0 {
		gap := max(a.v, b.v) - min(a.v, b.v)
		if gap <= 1e-6*max(a.v, b.v) { // too close to tell for how long
			p.uncacheable()
		} else if left := 0.9 * gap / pace; left < 1e6 {
			p.holdsUntil(p.now.Add(time.Duration(left*float64(time.Second)) + 1))
		}
	}
	return cmp.Compare(a.v, b.v)
}
