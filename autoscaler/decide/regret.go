package decide

import (
	"cmp"
	"time"
)

// regret is a time that is lost, in seconds, and by how much it changes in a second at most, for as long
// as what is found by it holds.
type regret struct{ v, pace float64 }

// compareRegrets orders regrets. What is found by it holds for as long as they can't be in another order.
func (p *plan) compareRegrets(a, b regret) int {
	if pace := a.pace + b.pace; pace > 0 {
		gap := max(a.v, b.v) - min(a.v, b.v)
		if gap <= 1e-6*max(a.v, b.v) { // too near to tell for how long
			p.uncacheable()
		} else if left := 0.9 * gap / pace; left < 1e6 {
			p.holdsUntil(p.now.Add(time.Duration(left*float64(time.Second)) + 1))
		}
	}
	return cmp.Compare(a.v, b.v)
}
