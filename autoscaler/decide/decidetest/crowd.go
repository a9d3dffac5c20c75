package decidetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// undeclared is a function that does not belong to the cluster.
const undeclared api.FunctionName = "models/undeclared"

// Crowd has n functions wait in w, at most one of ten, and plans until no grants are revoked. It returns the actions of
// the last plan. They need whole GPUs, all of which are taken: the rest of every GPU without a busy instance is first
// given to an undeclared function. They have a lower priority than the busy functions, so none gets its turn within five
// seconds. Every second has starved long enough to book ahead, every tenth needs two GPUs, and each one's model files are
// on a different node.
func (c *Cluster) Crowd(w *decide.World, n int) []decide.Action {
	others := &decide.Function{Undeclared: true, Instances: c.undeclared()}
	others.Spec.Name = undeclared
	w.Put(others)
	for k := range n {
		f := c.Functions[9+10*k]
		f.Spec.Priority, f.Need.Devices, f.Need.PerDevice = -1, 1, 80*api.GiB
		f.Past.Nodes = []string{c.Devices[k%(len(c.Devices)/(1+GPUs))*(1+GPUs)].Node}
		f.Waiting, f.WaitingSince = 1, c.Now.Add(-time.Duration(k%2)*10*time.Second)
		f.LastRequest = f.WaitingSince
		if k%10 == 0 {
			f.Need.Devices = 2
		}
		w.Put(&f)
	}
	for {
		actions, _ := w.Plan(c.Now)
		if !c.revoke(w, actions) {
			return actions
		}
	}
}

// revoke applies the revocations in actions, and reports whether there were any.
func (c *Cluster) revoke(w *decide.World, actions []decide.Action) (any bool) {
	for _, a := range actions {
		if a.Kind != decide.Revoke {
			continue
		}
		k, _ := slices.BinarySearchFunc(c.Functions, a.Function, func(f decide.Function, name api.FunctionName) int { return cmp.Compare(f.Spec.Name, name) })
		for j := range c.Instances {
			if i := &c.Instances[j]; i.Status.Instance == a.Instance {
				i.Grant, any = api.Grant{}, true
			}
		}
		w.Put(c.of(k))
	}
	return any
}

// undeclared returns instances that take the free memory of GPUs without a busy instance.
func (c *Cluster) undeclared() (is []*decide.Instance) {
	for _, l := range decide.Account(c.Snapshot, c.Now) {
		if l.IsHost() || l.Awake > 0 {
			continue
		}
		is = append(is, &decide.Instance{Since: c.Now.Add(-time.Minute), Status: api.InstanceStatus{
			Instance: api.InstanceID(fmt.Sprintf("undeclared-%06d", len(is))), Function: undeclared, State: api.Awake, Seq: 1,
			Memory: api.Memory{Devices: 1, PerDevice: l.Free}, Node: l.Node, Devices: []api.DeviceID{l.ID}}})
	}
	return is
}
