package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// unmeasured is how long an instance that has come up may take to report the file.
const unmeasured = 10 * time.Second

// sharedFile is the file that instances have in memory on one node.
type sharedFile struct {
	node int32
	// file is the largest part that an instance has in memory; stays, the largest of an awake one.
	file, stays api.Bytes
	// holders have such a file; claimed is the largest part that a starting instance expects to share.
	holders int
	claimed api.Bytes
}

// findSharedFiles computes how much of the file starting instances share with running ones, before they report it:
//
//  1. It applies only where instances were seen to share a file ([Function.OneFile]).
//  2. An instance that starts, or sleeps under a grant, is charged less by another's part, as long as that one has it.
//  3. When that one ends, the shared part does not become free: the started instance bears it then.
//  4. A sleeper without a grant, and a start, count only on awake instances.
//
// So the file is charged exactly once at any time.
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

// claims reports whether memory is reserved for i to be awake, and it has not reported what it shares.
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

func (f *function) sharedFileOn(node int32) *sharedFile {
	for k := range f.sharedFiles {
		if f.sharedFiles[k].node == node {
			return &f.sharedFiles[k]
		}
	}
	return nil
}

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

// common returns what stays in use when i ends, because others share it or will.
func (i *instance) common() api.Bytes { return max(i.Common, i.lent) }

func (i *instance) keepCommon() {
	if len(i.leaves) > 0 {
		i.leaves[0] -= min(i.common(), i.leaves[0])
	}
}

// Share computes which instances of one node are charged for a file that they share:
//
//  1. The instance with the largest part in memory bears all of it; of equal ones the first by name.
//  2. The others are charged less by their part.
//  3. When the bearer ends, the next one bears it: so the first one releases less.
//
// among are all instances of the node that report the file; Share sorts them.
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
				common = has(among[1])
			}
		}
		i.Borne, i.Common = borne, common
	}
}
