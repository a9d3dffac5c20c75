package decide

import (
	"cmp"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// Share settles who is charged for the memory that instances of one node have in common, by what they have reported last: a file
// that is in memory is charged once, for as long as anybody has it.
//
//  1. Of those with the same file the one that has most of it in memory bears all of that; of equal ones that with the first name.
//  2. The others are charged less, by what they have of it, and never by more than their whole host memory.
//  3. When the one that bears it ends, the next one does: so what the first one gives back is less, too.
//
// Claims that disagree are charged as the largest. among are all instances of the node whose reports name the file; it sorts them. changed is called
// with each whose charge is another now.
func Share(among []*Instance, changed func(*Instance)) {
	has := func(i *Instance) api.Bytes { return max(0, min(i.Status.Shared.Bytes, i.Status.Memory.Host)) }
	slices.SortFunc(among, func(a, b *Instance) int {
		return cmp.Or(cmp.Compare(has(b), has(a)), cmp.Compare(a.Status.Instance, b.Status.Instance))
	})
	for k, i := range among {
		borne, common := has(i), api.Bytes(0)
		if k == 0 {
			borne = 0
			if len(among) > 1 {
				common = has(among[1]) // what the next one bears then
			}
		}
		if i.Borne != borne || i.Common != common {
			i.Borne, i.Common = borne, common
			changed(i)
		}
	}
}
