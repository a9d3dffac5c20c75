package autoscaler

import (
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// common charges anew for a file that instances of a node have in memory, after one of them has another report, or is gone.
func (a *Autoscaler) common(node string, shared api.SharedMemory) {
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
			f.OneFile = true // so those that come have it, too
			a.dirty.add(f.Spec.Name)
		}
	}
	decide.Share(among, func(i *decide.Instance) {
		if of := a.instances[i.Status.Instance]; of != nil {
			a.dirty.add(of.f.Spec.Name)
		}
	})
}

// share charges anew for what i has in common with others, and had before.
func (a *Autoscaler) share(i *instance, old api.InstanceStatus) {
	s := i.Status
	if s.Shared == old.Shared && s.Node == old.Node && s.Memory.Host == old.Memory.Host {
		return
	}
	if s.Shared.File != old.Shared.File || s.Node != old.Node {
		a.common(old.Node, old.Shared)
	}
	if s.Shared.File == "" && i.Borne+i.Common > 0 {
		i.Borne, i.Common = 0, 0
		a.dirty.add(i.f.Spec.Name)
	}
	a.common(s.Node, s.Shared)
}
