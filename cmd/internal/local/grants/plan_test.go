package grants

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// The model has no time: all deadlines are over, and nothing expires.
var clock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// backwards is how far the second machine's clock is behind, where that matters.
const backwards = time.Hour

func jump(l int) time.Duration { return time.Duration(l) }

// Memory of the one device and the two instances.
const (
	capacity = 10 * api.GiB
	whole    = 8 * api.GiB // awake
	residue  = api.GiB     // asleep
)

var states = map[phase]api.State{asleep: api.Asleep, rising: api.Starting, awake: api.Awake, falling: api.Draining, gone: api.Gone}

func functionName(i int) api.FunctionName { return api.FunctionName(fmt.Sprintf("default/f%d", i)) }
func instanceID(i int) api.InstanceID     { return api.InstanceID(fmt.Sprintf("f%d-1", i)) }

// planKey is all that a plan depends on.
type planKey struct {
	seen   [instances]belief
	demand uint8 // whose requests wait, as bits
}

type belief struct {
	phase phase
	doing kind
	out   bool
	due   bool
}

// planned is an action of [decide.Plan].
type planned struct {
	i    int
	kind kind
}

// leaderPlans: requests wait for some of the functions, and the leader decides.
func (m *model) leaderPlans(s *state, l int, yield func(move, *state)) {
	for demand := range uint8(1 << instances) {
		key := planKey{demand: demand}
		for i, v := range s.leaders[l].views {
			key.seen[i] = belief{v.known.phase, v.doing, v.out != 0, v.due && v.out != 0}
		}
		actions, found := m.plans[key]
		if !found {
			actions = plan(key)
			m.plans[key] = actions
		}
		if len(actions) == 0 {
			continue
		}
		n, ok := *s, true
		for _, a := range actions {
			ok = ok && m.act(&n, l, a)
		}
		if ok {
			yield(move{"leader %d decides for the demand of %02b[%d]", l, int(demand), 0}, &n)
		}
	}
}

// act carries out an action, as the autoscaler's does.
func (m *model) act(s *state, l int, a planned) bool {
	call, ok := m.give(s, l, a.i, a.kind)
	if !ok {
		return false
	}
	v := &s.leaders[l].views[a.i]
	v.doing, v.call = a.kind, call
	switch a.kind {
	case toWake, toGrant:
		v.out, v.due = s.leaders[l].orders[call].epoch, a.kind == toWake
	case toFence:
		if m.noWait {
			v.out, v.doing = 0, none
		}
	}
	return true
}

// plan asks the product what an autoscaler that believes so does.
func plan(key planKey) []planned {
	shot := decide.Snapshot{
		Topology: decide.NewTopology([]inventory.Device{{ID: api.HostMemory, Capacity: api.GiB << 10, Total: api.GiB << 10}, {ID: "gpu", Capacity: capacity, Total: capacity}}),
		Policy:   decide.Policy{MinStay: 1, MaxStay: 1, TurnWait: 1, IdleGrace: 1, ScaleUpAfter: 1, GrantGrace: 1, GrantLife: 1000 * time.Hour},
	}
	for i, b := range key.seen {
		f := &decide.Function{
			Spec: api.Function{Name: functionName(i), MaxScale: 1, Concurrency: 1, StartTimeout: 1000 * time.Hour, WakeTimeout: 1000 * time.Hour},
			Need: api.Memory{Host: api.MiB, Devices: 1, PerDevice: whole}, Certain: true,
		}
		f.Spec.Memory = f.Need
		f.Past.Asleep[api.Level1] = api.Memory{Host: api.MiB, Devices: 1, PerDevice: residue}
		if key.demand&(1<<i) != 0 {
			f.Waiting, f.WaitingSince, f.LastRequest = 1, clock.Add(-time.Minute), clock.Add(-time.Minute)
		}
		shot.Functions = append(shot.Functions, f)
		if b.phase == gone {
			continue
		}
		inst := &decide.Instance{Since: clock.Add(-time.Hour), From: api.Level1, Doing: doing[b.doing], Level: api.Level1}
		inst.Status = api.InstanceStatus{Instance: instanceID(i), Function: functionName(i), State: states[b.phase], Devices: []api.DeviceID{"gpu"},
			Concurrency: 1, PID: 1, Memory: api.Memory{Host: api.MiB, Devices: 1, PerDevice: whole}}
		if b.phase == asleep {
			inst.Status.Level, inst.Status.Memory.PerDevice = api.Level1, residue
		}
		if b.out {
			inst.Grant = api.Grant{Instance: instanceID(i), Function: functionName(i), Epoch: 1, Expires: clock.Add(1000 * time.Hour)}
			if b.due {
				inst.Grant.Expires = clock
			}
		}
		f.Add(inst)
	}
	actions, _ := decide.Plan(shot, clock)
	var done []planned
	for _, a := range actions {
		k, known := kinds[a.Kind]
		if !known {
			continue // it changes nothing of the two instances; a start is no matter of grants
		}
		for i := range instances {
			if a.Instance == instanceID(i) {
				done = append(done, planned{i, k})
			}
		}
	}
	return done
}

var (
	doing = map[kind]decide.Doing{none: decide.Nothing, toWake: decide.DoingWake, toSleep: decide.DoingSleep, toStop: decide.DoingStop,
		toGrant: decide.DoingGrant, toFence: decide.DoingRevoke}
	kinds = map[decide.Kind]kind{decide.Wake: toWake, decide.Sleep: toSleep, decide.Stop: toStop, decide.Grant: toGrant, decide.Revoke: toFence}
)
