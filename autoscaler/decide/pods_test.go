package decide

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// schedule does what Kubernetes' scheduler does: each pod goes to the first node that has what it requests, or waits.
func (s *sim) schedule() {
	if s.total == nil {
		return
	}
	for id := range s.bound {
		if s.instance(id) == nil {
			delete(s.bound, id)
		}
	}
	names := slices.Sorted(maps.Keys(s.total))
	waits, pending := s.resize(), map[string]api.Requests{}
	for _, g := range s.Unmanaged {
		if g.Function != "" {
			pending[g.Candidates[0]] = pending[g.Candidates[0]].Plus(g.Requests)
		}
	}
	for k := range s.Instances {
		i := &s.Instances[k]
		if i.Status.State != api.Starting || i.Doing != Nothing || s.bound[i.Status.Instance] != "" {
			continue
		}
		need := i.Status.Requests
		i.Status.Stage, i.Status.Candidates = api.StageUnschedulable, nil
		for _, name := range names {
			if s.total[name].Lack(need) == nil {
				i.Status.Candidates = append(i.Status.Candidates, name)
			}
		}
		for _, name := range i.Status.Candidates {
			if s.left(name).Minus(pending[name]).Lack(need) == nil {
				s.bound[i.Status.Instance] = name
				i.Status.Node, i.Status.Stage, i.Status.Candidates = name, "", nil
				s.due = append(s.due, end{s.now.Add(s.nature[i.Status.Function].load), i.Status.Instance, func(i *Instance) {
					if i.Status.State == api.Starting {
						i.Since, i.Status.State = s.now, api.Awake
						s.weigh(i)
					}
				}})
				break
			}
		}
		waits = waits || i.Status.Stage != ""
	}
	s.Rooms = nil
	for _, name := range names {
		if waits || len(s.Unmanaged) > 0 {
			s.Rooms = append(s.Rooms, inventory.Room{Node: name, Free: s.left(name)})
		}
	}
}

// resize does what kubelets do: pods that request more again get it if their node has room. It reports whether one
// waits.
func (s *sim) resize() bool {
	s.Unmanaged = slices.DeleteFunc(s.Unmanaged, func(g inventory.UnmanagedPod) bool { return g.Function != "" })
	if !s.resizes {
		return false
	}
	for k := range s.Instances {
		i := &s.Instances[k]
		i.Status.Spare = nil
		if cpu := i.Status.Requests["cpu"]; (i.Status.State == api.Asleep || i.Status.State == api.Awake) && !i.Status.Shrunk && cpu > 2 && s.bound[i.Status.Instance] != "" {
			i.Status.Spare = api.Requests{"cpu": cpu - 2}
		}
	}
	waits := false
	for _, id := range sortedKeys(s.growing) {
		i := s.instance(id)
		if i == nil || i.Doing != DoingWake {
			delete(s.growing, id)
			continue
		}
		node, lack := s.bound[id], i.Status.Requests.Lack(s.nature[i.Status.Function].requests)
		if s.left(node).Lack(lack) == nil {
			i.Status.Requests, i.Status.Shrunk = i.Status.Requests.Plus(lack), false
			s.growing[id]()
			delete(s.growing, id)
			continue
		}
		s.Unmanaged = append(s.Unmanaged, inventory.UnmanagedPod{Name: string(id), Function: i.Status.Function, Requests: lack, Candidates: []string{node}})
		waits = true
	}
	return waits
}

// left returns the free resources of a node.
func (s *sim) left(name string) api.Requests {
	left := s.total[name]
	for id, node := range s.bound {
		if node == name {
			left = left.Minus(s.instance(id).Status.Requests)
		}
	}
	return left
}

// withScheduler has pods request something of nodes.
func (s *sim) withScheduler(total map[string]api.Requests, of func() api.Requests) {
	s.total, s.bound, s.growing = total, map[api.InstanceID]string{}, map[api.InstanceID]func(){}
	for _, name := range sortedKeys(s.nature) {
		s.nature[name].requests = of()
	}
}

// TestManyInTurnResized is TestManyInTurn where pods can be resized: no pod is deleted, and all are awake again
// in turn.
func TestManyInTurnResized(t *testing.T) {
	s := newSim()
	s.Devices = []inventory.Device{{ID: inventory.HostOf("n1"), Node: "n1", Capacity: 1000 * api.GiB}}
	const functions = 40
	name := func(k int) api.FunctionName { return api.FunctionName(fmt.Sprintf("default/f%03d", k)) }
	for k := range functions {
		s.declare(api.Function{Name: name(k), Memory: api.Memory{Host: api.GiB}, SleepAfter: 30 * time.Second, UnloadAfter: 10 * time.Hour}.WithDefaults())
	}
	s.withScheduler(map[string]api.Requests{"n1": {"cpu": 1200, "pods": 110}}, func() api.Requests { return api.Requests{"cpu": 100, "pods": 1} })
	s.resizes = true
	s.watch = func(actions []Action) {
		for _, a := range actions {
			if a.Kind == Stop {
				t.Errorf("%s: %s", s.now.Sub(s.start), a)
			}
		}
	}
	for round := range 2 {
		for k := range functions {
			began := s.now
			s.use(name(k), 1)
			for f := s.function(name(k)); f.Running == 0; f = s.function(name(k)) {
				s.run(100*time.Millisecond, nil)
				if s.now.Sub(began) > time.Minute {
					t.Fatalf("round %d: %s is not served within a minute:\n%s\n%s", round, name(k), describe(s), strings.Join(s.tell(), "\n"))
				}
			}
			s.use(name(k), 0)
			s.run(5*time.Second, nil)
			if left := s.left("n1"); left["cpu"] < 0 {
				t.Fatalf("round %d: after %s the node has %s left", round, name(k), left)
			}
		}
	}
	if got := len(s.bound); got != functions {
		t.Errorf("%d pods are on the node, want %d", got, functions)
	}
}

// TestManyInTurn asks for forty functions, one after the other, where a node has room for ten pods. All are
// served. The last used ones stay longest, and each keeps its place as long as no other needs it.
func TestManyInTurn(t *testing.T) {
	s := newSim()
	s.Devices = []inventory.Device{{ID: inventory.HostOf("n1"), Node: "n1", Capacity: 1000 * api.GiB}}
	const functions, room = 40, 10
	name := func(k int) api.FunctionName { return api.FunctionName(fmt.Sprintf("default/f%03d", k)) }
	for k := range functions {
		s.declare(api.Function{Name: name(k), Memory: api.Memory{Host: api.GiB}, SleepAfter: 30 * time.Second, UnloadAfter: time.Hour}.WithDefaults())
	}
	s.withScheduler(map[string]api.Requests{"n1": {"cpu": 1000, "pods": 110}}, func() api.Requests { return api.Requests{"cpu": 100, "pods": 1} })
	for round := range 2 {
		for k := range functions {
			began := s.now
			s.use(name(k), 1)
			for f := s.function(name(k)); f.Running == 0; {
				s.run(100*time.Millisecond, nil)
				if s.now.Sub(began) > time.Minute || s.nature[name(k)].users == 0 {
					t.Fatalf("round %d: %s is not served within a minute:\n%s\n%s", round, name(k), describe(s), strings.Join(s.tell(), "\n"))
				}
				f = s.function(name(k))
			}
			s.use(name(k), 0)
			s.run(time.Second, nil)
			if got, want := len(s.bound), min(room, round*functions+k+1); got != want {
				t.Errorf("round %d: after %s %d pods are on the node, want %d", round, name(k), got, want)
			}
		}
		for k := functions - room; k < functions; k++ {
			if !slices.ContainsFunc(s.Instances, func(i Instance) bool { return i.Status.Function == name(k) }) {
				t.Errorf("round %d: %s is gone, and was used after others that stayed", round, name(k))
			}
		}
	}
}

// FuzzSeat runs random worlds whose pods request something of their nodes, with users that come and go. No busy
// instance ends, and none that min-scale keeps. No action exceeds a node's room, and plans come to rest. If no instance
// is busy, all waiting functions get their turn.
func FuzzSeat(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := randomFleet(r, 2+r.IntN(10), 1+r.IntN(3), func() int { return 0 })
		for k := range s.Functions {
			spec := &s.Functions[k].Spec
			spec.Memory.Devices, spec.Memory.PerDevice, spec.MinScale, spec.VariantOf = 0, 0, 0, ""
			spec.Memory.Host /= 8
			s.Functions[k].Need = spec.Memory
		}
		total := map[string]api.Requests{}
		for _, d := range s.Devices {
			total[d.Node] = api.Requests{"cpu": int64(200 + r.IntN(600)), "pods": int64(1 + r.IntN(5))}
		}
		s.withScheduler(total, func() api.Requests { return api.Requests{"cpu": int64(10 + r.IntN(190)), "pods": 1} })
		s.resizes = r.IntN(2) == 0
		s.auditor = &auditor{}
		var log []string
		fail := func(format string, args ...any) {
			t.Helper()
			log = append(log, s.tell()...)
			t.Fatalf("seed %d at %s: %s\n%s\n%s", seed, s.now.Sub(s.start), fmt.Sprintf(format, args...), describe(s), strings.Join(log[max(0, len(log)-60):], "\n"))
		}
		s.watch = func(actions []Action) {
			for _, a := range actions {
				if a.Kind != Stop || !strings.Contains(a.Reason, "makes room for") {
					continue
				}
				i, f := s.instance(a.Instance), s.function(a.Function)
				if i.Status.State == api.Awake && f.Running > 0 && f.Running > f.Spec.Concurrency*(f.Load.Awake-1) {
					fail("%s goes, which works", a)
				}
			}
		}
		run := func(d time.Duration) {
			s.run(d, func() {
				switch {
				case s.auditor.wrong != "":
					fail("%s", s.auditor.wrong)
				case s.restless:
					fail("plans go on acting without anything having changed")
				}
			})
			log = append(log, s.tell()...)
		}
		for range 10 {
			for k := range s.Functions {
				if r.IntN(2) == 0 {
					s.use(s.Functions[k].Spec.Name, r.IntN(6)*r.IntN(2))
				}
			}
			if s.Unmanaged = nil; r.IntN(3) == 0 {
				s.Unmanaged = []inventory.UnmanagedPod{{Name: "shop/web", Requests: api.Requests{"cpu": int64(10 + r.IntN(500)), "pods": 1}, Candidates: []string{s.Devices[0].Node}}}
			}
			run(time.Duration(1+r.IntN(40)) * time.Second)
		}
		s.Unmanaged = nil
		for k := range s.Functions {
			s.use(s.Functions[k].Spec.Name, 0)
		}
		last := s.Functions[r.IntN(len(s.Functions))].Spec.Name
		s.use(last, 1)
		run(2 * time.Minute)
		if f := s.function(last); f.Running == 0 && s.nature[last].users > 0 {
			fail("%s waits for longer than two minutes, and nobody else works", last)
		}
	})
}
