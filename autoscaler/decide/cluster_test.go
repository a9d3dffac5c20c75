package decide

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// randomCluster makes a world of several nodes and so many functions.
func randomCluster(r *rand.Rand, functions int) *sim {
	return randomFleet(r, functions, 1+r.IntN(4), func() int { return r.IntN(4) })
}

// randomFleet makes a world of so many functions on so many nodes, with as many GPUs as gpus says for each.
func randomFleet(r *rand.Rand, functions, nodes int, gpus func() int) *sim {
	s := newSim()
	s.Devices = nil
	for n := range nodes {
		node := fmt.Sprintf("n%d", n)
		s.Devices = append(s.Devices, inventory.Device{ID: inventory.HostOf(node), Node: node, Capacity: api.Bytes(2+r.IntN(8)) * api.GiB})
		for d := range gpus() {
			s.Devices = append(s.Devices, inventory.Device{ID: api.DeviceID(fmt.Sprintf("%s-gpu%d", node, d)), Node: node,
				Capacity: api.Bytes(8+8*r.IntN(3)) * api.GiB, Others: api.Bytes(r.IntN(2)) * api.GiB / 2})
		}
	}
	for k := range functions {
		spec := api.Function{Name: api.FunctionName(fmt.Sprintf("default/f%d", k)), Concurrency: 1 + r.IntN(4),
			Memory:   api.Memory{Host: api.Bytes(1+r.IntN(8)) * 256 * api.MiB},
			MaxScale: 1 + r.IntN(3), SleepAfter: time.Duration(r.IntN(4)) * 10 * time.Second,
			UnloadAfter: time.Duration(r.IntN(4)) * 30 * time.Second, Priority: r.IntN(3) - 1,
		}.WithDefaults()
		if r.IntN(3) > 0 {
			spec.Memory.Devices, spec.Memory.PerDevice = 1+r.IntN(2), api.Bytes(r.IntN(16))*api.GiB
		}
		if r.IntN(6) == 0 {
			spec.MinScale = 1
		}
		if r.IntN(2) == 0 {
			spec.VariantOf, spec.Cost = api.ModelName(fmt.Sprintf("m%d", r.IntN(2))), float64(r.IntN(3))
		}
		n := s.declare(spec)
		n.load = time.Duration(1+r.IntN(8000)) * time.Millisecond
		n.wake = time.Duration(1+r.IntN(2000)) * time.Millisecond
		n.sleep = time.Duration(1+r.IntN(1000)) * time.Millisecond
		n.residue[1] = spec.Memory.Host * api.Bytes(r.IntN(60)) / 100
		n.residue[2] = n.residue[1] * api.Bytes(r.IntN(100)) / 100
		n.perResidue[1] = spec.Memory.PerDevice * api.Bytes(r.IntN(20)) / 100
	}
	return s
}

// disturb has others use some of a device, more or less than before, or takes away a node, or
// brings those back that were taken away.
func disturb(r *rand.Rand, s *sim, all []inventory.Device) {
	switch r.IntN(6) {
	case 0:
		d := &s.Devices[r.IntN(len(s.Devices))]
		d.Others = api.Bytes(r.IntN(5)) * d.Capacity / 8
	case 1:
		if gone := s.Devices[r.IntN(len(s.Devices))].Node; gone != s.Devices[0].Node {
			s.Devices = slices.DeleteFunc(s.Devices, func(d inventory.Device) bool { return d.Node == gone })
		}
	case 2:
		s.Devices = slices.Clone(all)
	}
}

// FuzzCluster runs random worlds with users that come and go, devices that lose memory to
// others, nodes that go and come back, calls that fail, and functions that are removed. It checks that plans come to rest,
// and that no action gives what is not there.
func FuzzCluster(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	fuzzing := flag.Lookup("test.fuzzworker").Value.String() == "true"
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := randomWorld(r)
		if r.IntN(4) > 0 {
			s = randomCluster(r, 2+r.IntN(8))
		} else if r.IntN(3) == 0 {
			s = randomCluster(r, 12+r.IntN(10)) // most of them wait
		}
		for k := range s.Functions {
			if past := &s.Functions[k].Past; r.IntN(3) == 0 {
				gap := time.Duration(1+r.IntN(100)) * time.Second
				for range 6 {
					*past = past.Arrived(gap, s.now)
				}
			}
		}
		for k := range s.Functions { // some are about to be foreseen, or are usually wanted at this hour
			f := &s.Functions[k]
			if r.IntN(3) == 0 {
				f.Spec.Rehearse = api.RehearseAlways
			}
			if r.IntN(3) == 0 {
				gap := time.Duration(40+r.IntN(200)) * time.Second
				if r.IntN(3) == 0 {
					gap = 24 * time.Hour
				}
				for n := range 8 {
					f.noteVisit(s.now.Add(time.Duration(n-8)*gap+time.Duration(r.IntN(600))*time.Millisecond), gap)
				}
			}
		}
		if r.IntN(2) == 0 {
			s.flaky = rand.New(rand.NewPCG(seed, 6))
		}
		s.giveFiles(rand.New(rand.NewPCG(seed, 11)))
		s.auditor = &auditor{}
		all := slices.Clone(s.Devices)
		var log []string
		began := time.Now()
		for range 12 {
			if fuzzing && time.Since(began) > 3*time.Second {
				return // the fuzzer takes an input of ten seconds for one that hangs
			}
			for k := range s.Functions {
				if r.IntN(2) == 0 {
					s.use(s.Functions[k].Spec.Name, r.IntN(10)*r.IntN(2))
					s.busy(r, &s.Functions[k])
				}
			}
			s.run(time.Duration(1+r.IntN(40))*time.Second, func() {
				if s.restless && s.auditor.wrong == "" {
					s.auditor.wrong = "plans go on acting without anything having changed"
				}
				if s.auditor.wrong != "" {
					log = append(log, s.tell()...)
					t.Fatalf("seed %d at %s: %s\n%s\n%s", seed, s.now.Sub(s.start), s.auditor.wrong, describe(s), strings.Join(log[max(0, len(log)-60):], "\n"))
				}
			})
			log = append(log, s.tell()...)
			disturb(r, s, all)
			if r.IntN(4) == 0 && len(s.Functions) > 1 { // its instances stay, and belong to nobody
				k := r.IntN(len(s.Functions))
				if r.IntN(2) == 0 {
					name := s.Functions[k].Spec.Name
					s.Functions[k].Order = OrderStop
					s.run(5*time.Minute, nil)
					s.Instances = slices.DeleteFunc(s.Instances, func(i Instance) bool { return i.Status.Function == name })
					s.Functions = slices.Delete(s.Functions, k, k+1)
				}
			}
		}
	})
}

// TestUndeclared checks that the instance of a function that nobody has declared is left alone, until everything is to stop.
func TestUndeclared(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	i := &Instance{Since: now.Add(-time.Hour), Status: api.InstanceStatus{Instance: "x-1", Function: "default/x", State: api.Awake, Memory: api.Memory{Host: api.GiB}}}
	f := &Function{Spec: api.Function{Name: "default/x"}, Undeclared: true, Instances: []*Instance{i}}
	s := Snapshot{Topology: NewTopology([]inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB}}), Functions: []*Function{f}}
	if actions, _ := Plan(s, now); len(actions) > 0 || Account(s, now)[0].Awake != api.GiB {
		t.Errorf("got %v, want no action, and its memory counted: %+v", actions, Account(s, now))
	}
	f.Order = OrderStop
	if actions, _ := Plan(s, now); len(actions) != 1 || actions[0].Kind != Stop {
		t.Errorf("got %v, want that it stops", actions)
	}
}

// TestSlices checks that a slice of a GPU serves an instance that needs one GPU, and none that needs several.
func TestSlices(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		needs      int
		gpus       []api.DeviceID
		want       []api.DeviceID
		impossible string
	}{
		{1, []api.DeviceID{"MIG-a", "MIG-b"}, []api.DeviceID{"MIG-a"}, ""},
		{2, []api.DeviceID{"MIG-a", "GPU-a"}, nil, "needs 2 GPUs, there are 1"},
		{2, []api.DeviceID{"GPU-a", "MIG-a", "GPU-b"}, []api.DeviceID{"GPU-a", "GPU-b"}, ""},
	} {
		devices := []inventory.Device{{ID: api.HostMemory, Capacity: 64 * api.GiB}}
		for _, id := range c.gpus {
			devices = append(devices, inventory.Device{ID: id, Capacity: 40 * api.GiB})
		}
		spec := api.Function{Name: "default/x", Memory: api.Memory{Host: api.GiB, Devices: c.needs, PerDevice: 10 * api.GiB}}.WithDefaults()
		f := &Function{Spec: spec, Need: spec.Memory, Waiting: 1, WaitingSince: now, LastRequest: now}
		s := Snapshot{Topology: NewTopology(devices), Functions: []*Function{f}}
		if got := s.Topology.Impossible(f); got != c.impossible {
			t.Errorf("%d of %v: impossible because %q, want %q", c.needs, c.gpus, got, c.impossible)
		}
		var got []api.DeviceID
		actions, _ := Plan(s, now)
		for _, a := range actions {
			got = append(got, a.Devices...)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d of %v: got %v", c.needs, c.gpus, actions)
		}
	}
}

// TestTaken checks that an instance whose pod is being deleted holds its GPU until it is gone, and keeps its function from nothing
// elsewhere.
func TestTaken(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for gpus, want := range map[int]Kind{1: Wait, 2: Start} {
		devices := []inventory.Device{{ID: api.HostMemory, Capacity: 64 * api.GiB}}
		for k := range gpus {
			devices = append(devices, inventory.Device{ID: api.DeviceID(fmt.Sprintf("gpu-%d", k)), Capacity: 80 * api.GiB})
		}
		spec := api.Function{Name: "default/x", Memory: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}}.WithDefaults()
		i := &Instance{Since: now.Add(-time.Second), From: inventory.Stopped, Status: api.InstanceStatus{Instance: "x-1", Function: spec.Name, State: api.Draining, Taken: true,
			Memory: spec.Memory, Devices: []api.DeviceID{"gpu-0"}}}
		f := &Function{Spec: spec, Need: spec.Memory, Certain: true, Waiting: 1, WaitingSince: now, LastRequest: now, Instances: []*Instance{i}}
		s := Snapshot{Topology: NewTopology(devices), Functions: []*Function{f}}
		actions, _ := Plan(s, now)
		if len(actions) != 1 || actions[0].Kind != want || want == Start && actions[0].Devices[0] != "gpu-1" {
			t.Errorf("%d GPUs: got %v, want to %s", gpus, actions, want)
		}
		if l := Account(s, now)[1]; l.Leaving != 60*api.GiB {
			t.Errorf("%d GPUs: %+v, want that its GPU is leaving", gpus, l)
		}
	}
}
