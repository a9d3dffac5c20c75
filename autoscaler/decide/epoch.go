package decide

// An epoch orders the grants and orders for one instance: see [api.Grant.Epoch]. The autoscaler issues increasing epochs,
// across restarts and leader changes too. There are two kinds; every epoch of the second kind is higher than all of
// the first:
//
//   - on one machine, the clock in nanoseconds;
//   - in a cluster, the leader's term and a counter within it.
const (
	termBit     = 1 << 63
	counterBits = 31
	mostTerm    = 1<<(63-counterBits) - 1
)

// FirstEpoch returns the lowest epoch of a term. It is higher than all epochs of earlier terms and all that come from
// a clock. Terms go from 1 to 1<<32-1.
func FirstEpoch(term uint64) uint64 { return termBit | min(term, mostTerm)<<counterBits }

// termOf returns the term of an epoch; 0 if the epoch comes from a clock.
func termOf(epoch uint64) uint64 {
	return (max(epoch, termBit) &^ termBit) >> counterBits
}
