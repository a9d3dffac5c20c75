package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// unmeasured is how long an instance that has come up may take until it says which file it has in memory.
const unmeasured = 10 * time.Second

// beside is what instances of one function have in memory on one node.
type beside struct {
	node int32
	// file is the most that one has of a file that others may have too; stays is that of those that are awake and stay so.
	file, stays api.Bytes
	// holders have such a file; claimed is the most that one counts on that comes up beside them.
	holders int
	claimed api.Bytes
}

// besides works out what those of f's instances that come up have in common with those that are up, before they have said so:
//
//  1. Only of a function whose instances were seen to have one file in memory, on one node ([Function.OneFile]).
//  2. Who comes up, or sleeps under a grant, is charged less by what another one has of it, for as long as that one has it.
//  3. Of what that one gives back at its end, as much less is free: who has come up bears it then, as in [Share].
//  4. A sleeper without a grant, and a start, count on those alone that are awake and stay so.
//
// So the file is charged once at every moment, also when who bears it goes while another one comes. Once who comes up has said
// what it has, [Share] settles it.
func (f *Function) besides(now time.Time) {
	f.inMemory = f.inMemory[:0]
	for _, i := range f.Instances {
		i.spared, i.lent = 0, 0
	}
	if !f.OneFile || f.Undeclared {
		return
	}
	for _, i := range f.Instances {
		n := min(i.Status.Shared.Bytes, i.Status.Memory.Host)
		if n <= 0 || len(i.at) == 0 || i.phase == phaseLeaving && i.Outdated {
			continue
		}
		b := f.besideOn(i.node)
		if b == nil {
			f.inMemory = append(f.inMemory, beside{node: i.node})
			b = &f.inMemory[len(f.inMemory)-1]
		}
		b.holders++
		b.file = max(b.file, n)
		if i.phase == phaseAwake {
			b.stays = max(b.stays, n)
		}
	}
	for _, i := range f.Instances {
		b := f.besideOn(i.node)
		if b == nil || i.Status.Shared.Bytes > 0 || i.Outdated {
			continue
		}
		switch claims := f.claims(i, now); {
		case claims:
			i.spared = b.file
			b.claimed = max(b.claimed, b.file)
		case i.Status.State == api.Asleep:
			i.spared = b.stays
		}
	}
	for _, i := range f.Instances {
		if b := f.besideOn(i.node); b != nil && b.holders == 1 && i.Status.Shared.Bytes > 0 {
			i.lent = b.claimed
		}
	}
}

// claims says whether memory is kept for i to be awake, and it has not yet said what it has in common with others.
func (f *Function) claims(i *Instance, now time.Time) bool {
	switch i.Status.State {
	case api.Asleep:
		return i.phase == phaseRising || i.reserved()
	case api.Starting:
		return true
	case api.Gone:
		return false
	}
	until := i.Since.Add(unmeasured)
	if !now.Before(until) {
		return false
	}
	f.changes(until)
	return true
}

// besideOn is what f's instances have in memory on a node; nil: nothing.
func (f *Function) besideOn(node int32) *beside {
	for k := range f.inMemory {
		if f.inMemory[k].node == node {
			return &f.inMemory[k]
		}
	}
	return nil
}

// needOn is what one more instance of f takes on a node.
func (f *Function) needOn(node int32) api.Memory {
	need := f.Need
	if b := f.besideOn(node); b != nil {
		need.Host -= min(b.stays, need.Host)
	}
	return need
}

// spare takes what i has in common with others out of what it takes awake, but nothing that it was seen to use.
func (i *Instance) spare() {
	if len(i.at) == 0 || i.spared == 0 {
		return
	}
	i.up[0] = max(i.up[0]-min(i.spared, i.up[0]), min(i.up[0], i.Status.Memory.Host))
}

// common is what is not free when i ends, because others have it too, or will.
func (i *Instance) common() api.Bytes { return max(i.Common, i.lent) }

// inMemoryThere tells what of a need is in memory already, n bytes.
func inMemoryThere(n api.Bytes) string {
	if n == 0 {
		return ""
	}
	return ", beside " + n.String() + " that are in memory there"
}
