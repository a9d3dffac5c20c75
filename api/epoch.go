package api

// An epoch orders what is permitted and ordered of one instance: see [Grant.Epoch].
// Whoever decides gives out higher and higher ones, over restarts and changes of
// leader too. There are two kinds, and every one of the second kind is higher than
// every one of the first:
//
//   - on one machine, nanoseconds of its clock;
//   - in a cluster, the term of the leader, and a counter within it.
const (
	termBit     = 1 << 63
	counterBits = 31
	mostTerm    = 1<<(63-counterBits) - 1
)

// FirstEpoch is the lowest epoch of a term. It is higher than all of the terms before,
// whatever they gave out, and than all that come from a clock. Terms go from 1 to 1<<32-1.
func FirstEpoch(term uint64) uint64 { return termBit | min(term, mostTerm)<<counterBits }

// TermOf is the term of an epoch; 0 for one that comes from a clock.
func TermOf(epoch uint64) uint64 {
	if epoch&termBit == 0 {
		return 0
	}
	return (epoch &^ termBit) >> counterBits
}

// StaleEpoch says whether an order with an epoch is refused by who has seen another. The
// same one is no refusal: one grant is good for many wakes, and orders are repeated.
func StaleEpoch(epoch, seen uint64) bool { return epoch < seen }
