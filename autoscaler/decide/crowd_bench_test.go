package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// undeclared is a function that does not belong to the cluster.
const undeclared api.FunctionName = "models/undeclared"

// Crowd has n functions wait, at most one of ten, and plans until no grants are revoked. It returns the actions of
// the last plan. They need whole GPUs, all of which are taken: the rest of every GPU without a busy instance is first
// given to an undeclared function. They have a lower priority than the busy functions, so none gets its turn within five
// seconds. Every second has starved long enough to book ahead, every tenth needs two GPUs, and each one's model files are
// on a different node.
func (c *benchCluster) Crowd(n int) []Action {
	if last := c.Functions[len(c.Functions)-1]; last.Spec.Name != undeclared {
		others := &Function{Undeclared: true, Instances: c.undeclared()}
		others.Spec.Name = undeclared
		c.Functions = append(c.Functions, others)
	}
	devices := c.Topology.Devices()
	for k := range n {
		f := c.Functions[9+10*k]
		f.Spec.Priority, f.Need.Devices, f.Need.PerDevice = -1, 1, 80*api.GiB
		f.Past.Nodes = []string{devices[k%(len(devices)/(1+benchGPUs))*(1+benchGPUs)].Node}
		f.Waiting, f.WaitingSince = 1, c.Now.Add(-time.Duration(k%2)*10*time.Second)
		f.LastRequest = f.WaitingSince
		if k%10 == 0 {
			f.Need.Devices = 2
		}
	}
	for {
		actions, _ := c.Plan()
		revoked := false
		for _, a := range actions {
			if a.Kind == Revoke {
				c.instance(a).Grant, revoked = api.Grant{}, true
			}
		}
		if !revoked {
			return actions
		}
	}
}

// undeclared returns instances that take the free memory of GPUs without a busy instance.
func (c *benchCluster) undeclared() (is []*Instance) {
	for k, l := range Account(c.Snapshot, c.Now) {
		if c.Snapshot.Topology.Devices()[k].IsHost() || l.Awake > 0 {
			continue
		}
		is = append(is, &Instance{Since: c.Now.Add(-time.Minute), Status: api.InstanceStatus{
			Instance: api.InstanceID(fmt.Sprintf("undeclared-%06d", len(is))), Function: undeclared, State: api.Awake, Seq: 1,
			Memory: api.Memory{Devices: 1, PerDevice: l.Free}, Node: l.Node, Devices: []api.DeviceID{l.ID}}})
	}
	return is
}
