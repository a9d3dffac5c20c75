package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// records are a snapshot as lists of values, which tests change more easily. An instance without a function belongs to one that is not declared.
type records struct {
	Policy    Policy
	Devices   []inventory.Device
	Rooms     []inventory.Room
	Unmanaged []inventory.UnmanagedPod
	Elastic   bool
	Functions []Function
	Instances []Instance
}

func (r *records) Sort() {
	slices.SortFunc(r.Functions, func(a, b Function) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	slices.SortFunc(r.Instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Status.Function, b.Status.Function), cmp.Compare(a.Status.Instance, b.Status.Instance))
	})
}

// snapshot refers to copies of the records.
func (r *records) snapshot() Snapshot {
	s := Snapshot{Policy: r.Policy, Topology: NewTopology(slices.Clone(r.Devices)), Rooms: r.Rooms, Unmanaged: r.Unmanaged, Elastic: r.Elastic}
	c := r.clone()
	of := make(map[api.FunctionName]*Function)
	for k := range c.Functions {
		f := &c.Functions[k]
		f.Instances = nil
		of[f.Spec.Name] = f
		s.Functions = append(s.Functions, f)
	}
	for k := range c.Instances {
		i := &c.Instances[k]
		f := of[i.Status.Function]
		if f == nil {
			f = &Function{Spec: api.Function{Name: i.Status.Function}, Undeclared: true}
			of[i.Status.Function] = f
			s.Functions = append(s.Functions, f)
		}
		f.Instances = append(f.Instances, i)
	}
	slices.SortFunc(s.Functions, func(a, b *Function) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	return s
}

func (r *records) plan(now time.Time) ([]Action, time.Time) { return Plan(r.snapshot(), now) }

func (r *records) account(now time.Time) []admin.Device { return Account(r.snapshot(), now) }

func (r *records) clone() records {
	c := *r
	c.Devices = slices.Clone(r.Devices)
	c.Functions = slices.Clone(r.Functions)
	for k := range c.Functions {
		c.Functions[k].NeededAt = slices.Clone(r.Functions[k].NeededAt)
	}
	c.Instances = slices.Clone(r.Instances)
	return c
}

// auditor checks that no action of a sim's plans gives what is not there.
type auditor struct {
	accounts []admin.Device // before the actions of the last plan
	wrong    string         // what was found
}

// before looks at a plan.
func (a *auditor) before(s *sim, actions []Action) {
	for _, act := range actions {
		for _, d := range s.Devices {
			if act.Kind == Start && slices.Contains(act.Devices, d.ID) && d.Node != act.Node {
				a.wrong += fmt.Sprintf("one instance is on %s and on %s: %s", act.Node, d.Node, act)
			}
		}
	}
	a.accounts = s.account(s.now)
}

// after looks at what is there once the actions of the plan were begun.
func (a *auditor) after(s *sim) {
	for k, l := range s.account(s.now) {
		was := a.accounts[k]
		if given := l.Awake + l.Rising + l.Reserved - (was.Awake + was.Rising + was.Reserved); given > 0 && l.Free < min(was.Free, 0) {
			a.wrong += fmt.Sprintf("%s of %s are given, of which there were %s free: awake %s, rising %s, reserved %s, asleep %s, leaving %s, others %s of %s",
				given, l.ID, was.Free, l.Awake, l.Rising, l.Reserved, l.Asleep, l.Leaving, l.Others, l.Capacity)
		}
	}
}
