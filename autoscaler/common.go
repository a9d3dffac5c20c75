package autoscaler

import (
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// common redistributes the cost of a file that several instances of a node have mapped, after the report or the end of one
// of them.
func (a *loop) common(node string, shared api.SharedMemory) {
	if shared.File == "" {
		return
	}
	var among []*decide.Instance
	for _, i := range a.instances {
		if s := &i.Status; s.Node == node && s.Shared.File == shared.File {
			among = append(among, &i.Instance)
		}
	}
	for k, i := range among {
		f := a.functions[i.Status.Function]
		if f != nil && !f.OneFile && slices.ContainsFunc(among[:k], func(o *decide.Instance) bool { return o.Status.Function == i.Status.Function }) {
			f.OneFile = true // so that future instances count it, too
		}
	}
	decide.Share(among)
}

// share redistributes the cost of the file that i shares with others, and of the one that it shared before.
func (a *loop) share(i *instance, old api.InstanceStatus) {
	s := i.Status
	if s.Shared == old.Shared && s.Node == old.Node && s.Memory.Host == old.Memory.Host {
		return
	}
	if s.Shared.File != old.Shared.File || s.Node != old.Node {
		a.common(old.Node, old.Shared)
	}
	if s.Shared.File == "" && i.Borne+i.Common > 0 {
		i.Borne, i.Common = 0, 0
	}
	a.common(s.Node, s.Shared)
}
