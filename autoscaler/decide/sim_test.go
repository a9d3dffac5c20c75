package decide

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// sim is a small world for plans: it carries actions out, with the time that
// they take, and keeps the demand of a constant number of users per function.
// It is the slow, obvious twin of the owner loop.
type sim struct {
	records
	now   time.Time
	start time.Time
	// nature has the true properties of functions.
	nature map[api.FunctionName]*nature
	// due lists the ends of the running calls.
	due    []end
	number int
	epoch  uint64
	sleeps int
	// watch sees each plan before it is carried out.
	watch func([]Action)
	// auditor, where there is one, looks at each plan.
	auditor *auditor
	// restless says that plans went on acting without anything having changed.
	restless bool
	// flaky, where there is one, says which calls fail: they are tried again after a while.
	flaky *rand.Rand
	// told lists the actions since the last look, a line each; repeated waits are listed once.
	told []string
	// total is the room for pods' requests on each node; nil: there is no scheduler. bound lists the placed pods.
	total map[string]api.Requests
	bound map[api.InstanceID]string
	// resizes says that pods can be resized; growing are those that wait for more, and what follows when they have it.
	resizes  bool
	growing  map[api.InstanceID]func()
	lastWait map[api.FunctionName]string
	// suspended has the host memory of suspended instances.
	suspended map[api.InstanceID]api.Bytes
}

// nature has the true properties of a function, and its users.
type nature struct {
	load, wake, sleep time.Duration
	residue           [3]api.Bytes // of host, by level
	perResidue        [3]api.Bytes // of each device, by level
	requests          api.Requests // of its pods
	file              api.Bytes    // what its instances on a node have in common while they are up
	users             int
	work              Load // inside the runtimes, all together; TTFT is measured for a single request
	// starving is since when users wait without an instance; worst is the longest that lasted.
	starving time.Time
	worst    time.Duration
}

// end is the end of a call.
type end struct {
	at time.Time
	id api.InstanceID
	do func(i *Instance)
}

func newSim() *sim {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	return &sim{now: now, start: now, nature: map[api.FunctionName]*nature{}, suspended: map[api.InstanceID]api.Bytes{}, lastWait: map[api.FunctionName]string{},
		records: records{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB}}}}
}

func (s *sim) function(name api.FunctionName) *Function {
	for k := range s.Functions {
		if s.Functions[k].Spec.Name == name {
			return &s.Functions[k]
		}
	}
	return nil
}

func (s *sim) instance(id api.InstanceID) *Instance {
	for k := range s.Instances {
		if s.Instances[k].Status.Instance == id {
			return &s.Instances[k]
		}
	}
	return nil
}

// declare adds a function.
func (s *sim) declare(spec api.Function) *nature {
	s.Functions = append(s.Functions, Function{Spec: spec, Need: spec.Memory, Certain: spec.Memory.Host > 0})
	n := &nature{load: 3 * time.Second, wake: 300 * time.Millisecond, sleep: 200 * time.Millisecond}
	s.nature[spec.Name] = n
	s.Sort()
	return n
}

// use sets the number of users of a function.
func (s *sim) use(name api.FunctionName, users int) {
	f := s.function(name)
	s.note(f)
	s.nature[name].users = users
	if users > 0 {
		f.LastRequest = s.now
	}
	s.demand(f)
}

// note does what the loop does when demand changes: it marks the function as needed until now.
func (s *sim) note(f *Function) {
	n, _, _ := f.Wanted(f.Load.Awake)
	for len(f.NeededAt) < n {
		f.NeededAt = append(f.NeededAt, s.now)
	}
	for k := range n {
		f.NeededAt[k] = s.now
	}
}

// demand divides a function's users among its awake instances.
func (s *sim) demand(f *Function) {
	s.note(f)
	n := s.nature[f.Spec.Name]
	places := 0
	for _, i := range s.Instances {
		if i.Status.Function == f.Spec.Name && phaseOf(&i) == phaseAwake {
			places += f.Spec.Concurrency
		}
	}
	f.Running = min(n.users, places)
	waiting := n.users - f.Running
	if waiting > 0 && f.Waiting == 0 {
		f.WaitingSince = s.now
	}
	f.Waiting = waiting
	if f.Spec.VariantOf != "" {
		f.Shared = waiting
	}
	s.press(f, n, places/f.Spec.Concurrency)
	if f.Serving && places == 0 {
		f.ServedUntil = s.now
	}
	f.Serving = places > 0
	switch {
	case n.users == 0 || places > 0:
		if !n.starving.IsZero() {
			n.worst = max(n.worst, s.now.Sub(n.starving))
		}
		n.starving = time.Time{}
	case n.starving.IsZero():
		n.starving = s.now
	}
}

// busy gives what f runs some work.
func (s *sim) busy(r *rand.Rand, f *Function) {
	s.note(f)
	s.nature[f.Spec.Name].work = Load{KV: 4 * r.Float64() * float64(r.IntN(2)), Waiting: r.IntN(40) * r.IntN(2), TTFT: time.Duration(r.IntN(3000)) * time.Millisecond}
	s.demand(f)
}

// press divides the work of a function among its awake instances.
func (s *sim) press(f *Function, n *nature, awake int) {
	if awake == 0 {
		f.Load, f.PressedSince = Load{}, time.Time{}
		return
	}
	f.Load = Load{Awake: awake, KV: min(n.work.KV, float64(awake)), Waiting: n.work.Waiting, TTFT: n.work.TTFT / time.Duration(awake)}
	if _, pressed, _ := f.Wanted(awake); !pressed {
		f.PressedSince = time.Time{}
	} else if f.PressedSince.IsZero() {
		f.PressedSince = s.now
	}
}

// plan plans and starts the actions until none is left, and returns when to look again. Several rounds are needed
// because victims' users become waiting users.
func (s *sim) plan() time.Time {
	for range 10 {
		if next, quiet := s.once(); quiet {
			return next
		}
	}
	s.restless = true
	return time.Time{}
}

// once makes one plan and starts its actions.
func (s *sim) once() (next time.Time, quiet bool) {
	s.share()
	actions, next := s.records.plan(s.now)
	if s.auditor != nil {
		s.auditor.before(s, actions)
	}
	if s.watch != nil {
		s.watch(actions)
	}
	quiet = true
	for _, a := range actions {
		if a.Kind == Wait {
			if s.lastWait[a.Function] != a.Reason {
				s.lastWait[a.Function] = a.Reason
				s.told = append(s.told, fmt.Sprintf("%8s %s", short(s.now.Sub(s.start)), a))
			}
			continue
		}
		quiet = false
		delete(s.lastWait, a.Function)
		s.told = append(s.told, fmt.Sprintf("%8s %s", short(s.now.Sub(s.start)), a))
		s.act(a)
	}
	if s.auditor != nil {
		s.auditor.after(s)
	}
	s.schedule()
	for k := range s.Functions {
		s.demand(&s.Functions[k])
	}
	return next, quiet
}

var doingOf = map[Kind]Doing{Sleep: DoingSleep, Stop: DoingStop, Revoke: DoingRevoke}

// act begins an action.
func (s *sim) act(a Action) {
	n := s.nature[a.Function]
	i := s.instance(a.Instance)
	later := func(d time.Duration, do func(*Instance)) {
		s.due = append(s.due, end{s.now.Add(d), i.Status.Instance, do})
	}
	become := func(st api.State, level api.Level) func(*Instance) {
		return func(i *Instance) {
			i.Doing, i.Since = Nothing, s.now
			i.Status.State, i.Status.Level = st, level
			if st == api.Awake && s.nature[i.Status.Function].file > 0 { // it is measured after that
				s.due = append(s.due, end{s.now.Add(2 * time.Millisecond), i.Status.Instance, func(i *Instance) {
					if i.Status.State == api.Awake {
						s.weigh(i)
					}
				}})
				return
			}
			if st != api.Asleep || i.Status.Memory.Host == 0 {
				s.weigh(i)
				return
			}
			// A sleeper is measured a moment after it said that it sleeps.
			i.Settles = s.now.Add(300 * time.Millisecond)
			s.due = append(s.due, end{s.now.Add(2 * time.Millisecond), i.Status.Instance, func(i *Instance) {
				if i.Settles = (time.Time{}); i.Status.State == api.Asleep {
					s.weigh(i)
				}
			}})
		}
	}
	if (a.Kind == Sleep || a.Kind == Stop || a.Kind == Revoke) && s.flaky != nil && s.flaky.IntN(3) == 0 {
		i.Doing, i.Level = doingOf[a.Kind], a.Level
		later(time.Millisecond, func(i *Instance) {
			i.Doing, i.Level, i.RetryAt = Nothing, 0, s.now.Add(time.Duration(1+s.flaky.IntN(8000))*time.Millisecond)
		})
		return
	}
	switch a.Kind {
	case Start:
		s.number++
		id := api.InstanceID(fmt.Sprintf("%s-%04d", a.Function.Name(), s.number))
		s.Instances = append(s.Instances, Instance{Doing: DoingStart, Since: s.now, From: inventory.Stopped,
			Status: api.InstanceStatus{Instance: id, Function: a.Function, State: api.Starting, Devices: a.Devices, Node: a.Node}})
		s.Sort()
		i = s.instance(id)
		if s.total != nil { // its pod is made, and finds a node first
			i.Doing, i.Status.Requests = Nothing, n.requests
			return
		}
		later(n.load, become(api.Awake, 0))
	case Wake:
		i.Doing, i.Since = DoingWake, s.now
		i.Ahead, i.Rehearsing, i.Rehearsed = a.Ahead, false, a.Rehearsal
		if i.Status.Shrunk { // its pod grows first
			s.growing[a.Instance] = func() { // by then i may be another's place
				s.due = append(s.due, end{s.now.Add(n.wake), a.Instance, become(api.Awake, 0)})
			}
			return
		}
		if i.Status.Level == api.Suspended {
			i.Status.Devices = a.Devices
		}
		later(n.wake, func(i *Instance) {
			if i.From == api.Suspended {
				i.Status.Suspends, s.function(i.Status.Function).Past.Wake[api.Suspended] = true, n.wake
			}
			become(api.Awake, 0)(i)
		})
	case Sleep:
		i.Rehearsing = a.Rehearsal
		if a.Shrink {
			fall, awake := become(api.Asleep, a.Level), i.Status.State == api.Awake
			i.Doing, i.Level = DoingSleep, a.Level
			later(n.sleep, func(i *Instance) {
				if awake {
					fall(i)
				}
				i.Doing, i.Level, i.Grant = Nothing, 0, api.Grant{}
				i.Status.Requests, i.Status.Spare, i.Status.Shrunk = i.Status.Requests.Minus(i.Status.Spare), nil, true
			})
			return
		}
		s.sleeps++
		i.Doing, i.Level = DoingSleep, a.Level
		later(n.sleep, func(i *Instance) {
			if a.Level == api.Suspended {
				under := max(api.Level1, i.Status.Level, s.function(a.Function).Spec.SleepLevel*api.Level(btoi(i.Status.Level == 0)))
				s.suspended[a.Instance] = n.residue[under] + n.perResidue[under]*api.Bytes(len(i.Status.Devices))
				i.Status.Devices = nil
			}
			i.Grant = api.Grant{}
			become(api.Asleep, a.Level)(i)
			i.From = a.Level
		})
	case Stop:
		i.Doing = DoingStop
		later(n.sleep, func(i *Instance) {
			s.Instances = slices.DeleteFunc(s.Instances, func(j Instance) bool { return j.Status.Instance == i.Status.Instance })
		})
	case Grant:
		s.epoch++
		i.Doing, i.GrantedAt = DoingGrant, s.now
		i.Grant = api.Grant{Instance: i.Status.Instance, Epoch: s.epoch, Devices: a.Devices, Expires: a.Expires}
		later(time.Millisecond, func(i *Instance) { i.Doing = Nothing })
	case Revoke:
		i.Doing = DoingRevoke
		later(time.Millisecond, func(i *Instance) { i.Doing, i.Grant = Nothing, api.Grant{} })
	case Fail:
		f := s.function(a.Function)
		f.RefusedAt, f.Waiting = s.now, 0
		n.users = 0
	}
}

// weigh measures an instance.
func (s *sim) weigh(i *Instance) {
	f, n := s.function(i.Status.Function), s.nature[i.Status.Function]
	i.Status.Memory = api.Memory{Host: f.Need.Host, Devices: f.Need.Devices, PerDevice: f.Need.PerDevice}
	if i.Status.Shared = (api.SharedMemory{}); n.file > 0 && i.Status.State == api.Awake {
		i.Status.Shared = api.SharedMemory{File: string(f.Spec.Name), Bytes: n.file}
	}
	if i.Status.State == api.Asleep && i.Status.Level == api.Suspended {
		i.Status.Memory = api.Memory{Host: s.suspended[i.Status.Instance]}
	} else if i.Status.State == api.Asleep {
		i.Status.Memory = api.Memory{Host: n.residue[i.Status.Level], Devices: f.Need.Devices, PerDevice: n.perResidue[i.Status.Level]}
		f.Past.Asleep[i.Status.Level] = i.Status.Memory
		f.Past.Sleep = n.sleep
	} else if i.Status.State == api.Awake {
		f.Past.Load, f.Past.Wake[1], f.Past.Wake[2] = n.load, n.wake, n.wake*2
	}
}

// run lets time pass: from each end or wanted look to the next. check is called after each plan.
func (s *sim) run(d time.Duration, check func()) {
	until := s.now.Add(d)
	for {
		next := s.plan()
		if check != nil {
			check()
		}
		slices.SortStableFunc(s.due, func(a, b end) int { return a.at.Compare(b.at) })
		if len(s.due) > 0 && (next.IsZero() || s.due[0].at.Before(next)) {
			next = s.due[0].at
		}
		if next.IsZero() || next.After(until) {
			s.now = until
			return
		}
		s.now = next
		for len(s.due) > 0 && !s.due[0].at.After(s.now) {
			e := s.due[0]
			s.due = s.due[1:]
			if i := s.instance(e.id); i != nil {
				e.do(i)
			}
		}
		s.schedule()
		for k := range s.Functions {
			s.demand(&s.Functions[k])
		}
	}
}

// over says which device has more awake, on the way, falling or reserved than it holds; empty for none.
func (s *sim) over() string {
	for _, l := range s.account(s.now) {
		if l.Free < 0 {
			return fmt.Sprintf("%s: awake %s, rising %s, reserved %s, asleep %s, leaving %s of %s",
				l.ID, l.Awake, l.Rising, l.Reserved, l.Asleep, l.Leaving, l.Capacity)
		}
	}
	return ""
}

// tell returns and clears told.
func (s *sim) tell() []string {
	t := s.told
	s.told = nil
	return t
}

// sortedKeys keeps reports in one order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	var ks []K
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
