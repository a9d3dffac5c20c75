package decide

import (
	"cmp"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// Share computes which instances of one node are charged for a file that they share, from their last reports. A file in memory is charged once, as
// long as any instance has it:
//
//  1. The instance with the largest part in memory bears all of it; of equal ones the one with the first name.
//  2. The others are charged less by their part of it, and never by more than their whole host memory.
//  3. When the bearer ends, the next one bears it: so the first one releases less.
//
// Reports that disagree are charged as the largest. among are all instances of the node that report the file; Share sorts them.
func Share(among []*Instance) {
	has := func(i *Instance) api.Bytes { return max(0, min(i.Status.Shared.Bytes, i.Status.Memory.Host)) }
	slices.SortFunc(among, func(a, b *Instance) int {
		return cmp.Or(cmp.Compare(has(b), has(a)), cmp.Compare(a.Status.Instance, b.Status.Instance))
	})
	for k, i := range among {
		borne, common := has(i), api.Bytes(0)
		if k == 0 {
			borne = 0
			if len(among) > 1 {
				common = has(among[1]) // the next one will bear it
			}
		}
		i.Borne, i.Common = borne, common
	}
}
