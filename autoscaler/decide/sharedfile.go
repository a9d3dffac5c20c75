package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// unmeasured is how long an instance that has come up may take to report the file that it has mapped.
const unmeasured = 10 * time.Second

// sharedFile describes the file that instances of one function have in memory on one node.
type sharedFile struct {
	node int32
	// file is the largest part of the file that an instance has in memory; stays, the largest among instances that are awake
	// and stay so.
	file, stays api.Bytes
	// holders is the number of instances that have such a file; claimed, the largest part that a starting one expects to
	// share.
	holders int
	claimed api.Bytes
}

// findSharedFiles computes how much of the function's file starting instances share with running ones, before they have reported it:
//
//  1. It applies only to a function whose instances were seen to share a file on one node ([Function.OneFile]).
//  2. An instance that starts, or sleeps under a grant, is charged less by another one's part, as long as that one has it.
//  3. When that one ends, the shared part does not become free: the started instance bears it then, as in [Share].
//  4. A sleeper without a grant, and a start, count only on instances that are awake and stay so.
//
// So the file is charged exactly once at any time, also when its holder ends while another instance starts. Once the started
// instance has reported its part, [Share] accounts for it.
func (f *function) findSharedFiles(c *clock) {
	if !f.OneFile || f.Undeclared {
		return
	}
	for _, i := range f.instances {
		n := min(i.Status.Shared.Bytes, i.Status.Memory.Host)
		if n <= 0 || len(i.at) == 0 || i.phase == phaseLeaving && i.Outdated {
			continue
		}
		b := f.sharedFileOn(i.node)
		if b == nil {
			f.sharedFiles = append(f.sharedFiles, sharedFile{node: i.node})
			b = &f.sharedFiles[len(f.sharedFiles)-1]
		}
		b.holders++
		b.file = max(b.file, n)
		if i.phase == phaseAwake {
			b.stays = max(b.stays, n)
		}
	}
	for _, i := range f.instances {
		b := f.sharedFileOn(i.node)
		if b == nil || i.Status.Shared.Bytes > 0 || i.Outdated {
			continue
		}
		switch claims := f.claims(i, c); {
		case claims:
			i.spared = b.file
			b.claimed = max(b.claimed, b.file)
		case i.Status.State == api.Asleep:
			i.spared = b.stays
		}
	}
	for _, i := range f.instances {
		if b := f.sharedFileOn(i.node); b != nil && b.holders == 1 && i.Status.Shared.Bytes > 0 {
			i.lent = b.claimed
		}
	}
}

// claims reports whether memory is reserved for i to be awake and i has not yet reported what it shares with others.
func (f *function) claims(i *instance, c *clock) bool {
	switch i.Status.State {
	case api.Asleep:
		return i.phase == phaseRising || i.reserved()
	case api.Starting:
		return true
	case api.Gone:
		return false
	}
	return !c.due(i.Since.Add(unmeasured))
}

// sharedFileOn returns what f's instances have in memory on a node; nil: nothing.
func (f *function) sharedFileOn(node int32) *sharedFile {
	for k := range f.sharedFiles {
		if f.sharedFiles[k].node == node {
			return &f.sharedFiles[k]
		}
	}
	return nil
}

// needOn returns the memory that one more instance of f takes on a node.
func (f *function) needOn(node int32) api.Memory {
	need := f.Need
	if b := f.sharedFileOn(node); b != nil {
		need.Host -= min(b.stays, need.Host)
	}
	return need
}

// spare subtracts the shared part from i's need awake, but nothing of its measured use.
func (i *instance) spare() {
	if len(i.at) == 0 || i.spared == 0 {
		return
	}
	i.up[0] = max(i.up[0]-min(i.spared, i.up[0]), min(i.up[0], i.Status.Memory.Host))
}

// common returns the memory that stays in use when i ends, because others share it or will.
func (i *instance) common() api.Bytes { return max(i.Common, i.lent) }

// keepCommon subtracts from i.leaves what others share with i.
func (i *instance) keepCommon() {
	if len(i.leaves) > 0 {
		i.leaves[0] -= min(i.common(), i.leaves[0])
	}
}

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
