package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Epochs gives out epochs. The zero value is for one machine, whose clock orders them across restarts. It is not safe
// for concurrent use.
type Epochs struct {
	// Term is the leader's term in a cluster, higher than any earlier leader's; 0 on one machine.
	Term uint64

	// Last is the last result of Next that was not raised above seen.
	Last uint64
}

// Next returns an epoch higher than its earlier results, all epochs of earlier terms, and seen, the highest epoch that
// the instance is known to have, unless that is out of reach ([Epochs.Beyond]).
func (e *Epochs) Next(seen uint64, now time.Time) uint64 {
	first := uint64(max(0, now.UnixNano()))
	if e.Term > 0 {
		first = FirstEpoch(e.Term)
	}
	e.Last = max(e.Last, first) + 1
	if e.Beyond(seen) {
		return e.Last
	}
	return max(e.Last, seen+1)
}

// Beyond reports whether no order of this term can reach an instance that has seen an epoch.
func (e *Epochs) Beyond(seen uint64) bool { return seen+1 == 0 || termOf(seen+1) > e.Term }

// SettleGrant returns the grant that is left after the instance's report s.
func SettleGrant(out api.Grant, s api.InstanceStatus) api.Grant {
	if s.Epoch > out.Epoch {
		return api.Grant{}
	}
	return out
}

// ForgotEpoch reports whether an instance has lost its epoch because its process restarted.
func ForgotEpoch(before, now api.InstanceStatus) bool { return now.Epoch < before.Epoch }

// AssumeGranted returns the grant that an instance of unknown history may hold: of any epoch before epoch.
func AssumeGranted(s api.InstanceStatus, epoch uint64, expires time.Time) api.Grant {
	return api.Grant{Instance: s.Instance, Function: s.Function, Epoch: epoch, Devices: s.Devices, Expires: expires}
}

// Epochs ([api.Grant.Epoch]) are of two kinds; every one of the second is higher than all of the first:
//
//   - on one machine, the clock in nanoseconds;
//   - in a cluster, the leader's term and a counter within it.
const (
	termBit     = 1 << 63
	counterBits = 31
	mostTerm    = 1<<(63-counterBits) - 1
)

// FirstEpoch returns the lowest epoch of a term. Terms go from 1 to 1<<32-1.
func FirstEpoch(term uint64) uint64 { return termBit | min(term, mostTerm)<<counterBits }

// termOf returns 0 for an epoch from a clock.
func termOf(epoch uint64) uint64 {
	return (max(epoch, termBit) &^ termBit) >> counterBits
}
