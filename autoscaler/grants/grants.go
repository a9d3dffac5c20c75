// Package grants holds the rules by which the autoscaler grants permission to be
// awake, and by which a grant ends. They are pure: the autoscaler calls them, and so
// does the model that is searched for two instances awake in the same memory
// (cmd/internal/local/grants). docs/design/0006-grants.md has the reasons.
//
//  1. Every order and every permission has an epoch ([Epochs.Next]), higher than all
//     that were ever given out for the instance: within a term by counting, between
//     leaders by the term.
//  2. A grant counts as used until the instance itself has reported a later epoch
//     ([Settle]). No clock, activator or missing answer ends it.
//  3. An instance that another leader started, or that has lost the epoch that it had seen,
//     is assumed to hold a grant of any earlier epoch ([AssumeGranted]).
//
// It does no I/O and reads no clock.
package grants

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Epochs gives out epochs. The zero value is that of one machine, whose clock orders
// what it does over restarts. It is not safe for many goroutines.
type Epochs struct {
	// Term is the leader's in a cluster, higher than that of every leader before; 0 on one machine.
	Term uint64

	// Last is the last that Next returned that no instance had a part in; 0 at first.
	Last uint64
}

// Next is higher than all that it returned before, than seen, which is the highest
// that the instance is known to have been given, and than all of earlier terms. What is
// beyond ([Epochs.Beyond]) it does not outbid.
func (e *Epochs) Next(seen uint64, now time.Time) uint64 {
	first := uint64(max(0, now.UnixNano()))
	if e.Term > 0 {
		first = api.FirstEpoch(e.Term)
	}
	e.Last = max(e.Last, first) + 1
	if e.Beyond(seen) {
		return e.Last
	}
	return max(e.Last, seen+1)
}

// Beyond says whether an instance that has seen an epoch obeys a later leader, or
// lies: no order of this term can reach it.
func (e *Epochs) Beyond(seen uint64) bool { return seen+1 == 0 || api.TermOf(seen+1) > e.Term }

// Settle is what is left of a permission after the instance's own word: nothing, once
// it has seen a later epoch.
func Settle(out api.Grant, s api.InstanceStatus) api.Grant {
	if s.Epoch > out.Epoch {
		return api.Grant{}
	}
	return out
}

// Forgot says whether an instance has lost what it had seen: its process began anew.
func Forgot(before, now api.InstanceStatus) bool { return now.Epoch < before.Epoch }

// AssumeGranted is the grant that an instance of unknown history may hold: of any epoch
// before epoch, valid until expires at the latest.
func AssumeGranted(s api.InstanceStatus, epoch uint64, expires time.Time) api.Grant {
	return api.Grant{Instance: s.Instance, Function: s.Function, Epoch: epoch, Devices: s.Devices, Expires: expires}
}
