package decide

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// randomWorld makes a world from a seed: devices, functions of all kinds, and users.
func randomWorld(r *rand.Rand) *sim {
	s := newSim()
	s.Devices[0].Capacity = api.Bytes(1+r.IntN(8)) * api.GiB
	gpus := r.IntN(4)
	for d := range gpus {
		s.Devices = append(s.Devices, inventory.Device{ID: api.DeviceID(fmt.Sprintf("gpu%d", d)), Capacity: api.Bytes(8+8*r.IntN(3)) * api.GiB})
	}
	pinned := false
	for k := range 1 + r.IntN(7) {
		spec := api.Function{Name: api.FunctionName(fmt.Sprintf("default/f%d", k)), Concurrency: 1 + r.IntN(4),
			Memory:     api.Memory{Host: api.Bytes(1+r.IntN(12)) * 256 * api.MiB},
			MaxScale:   1 + r.IntN(3),
			SleepAfter: time.Duration(r.IntN(4)) * 10 * time.Second, UnloadAfter: time.Duration(r.IntN(4)) * 30 * time.Second,
			SleepLevel: api.Level(1 + r.IntN(2)), Priority: r.IntN(3) - 1,
		}.WithDefaults()
		if gpus > 0 && r.IntN(2) == 0 {
			spec.Memory.Devices = 1 + r.IntN(gpus)
			spec.Memory.PerDevice = api.Bytes(r.IntN(16)) * api.GiB
			spec.Memory.Host /= 4
		}
		if !pinned && r.IntN(5) == 0 {
			spec.MinScale, pinned = 1, true
		}
		n := s.declare(spec)
		n.load = time.Duration(1+r.IntN(8000)) * time.Millisecond
		n.wake = time.Duration(1+r.IntN(2000)) * time.Millisecond
		n.sleep = time.Duration(1+r.IntN(1000)) * time.Millisecond
		n.residue[1] = spec.Memory.Host * api.Bytes(r.IntN(60)) / 100
		n.residue[2] = n.residue[1] * api.Bytes(r.IntN(100)) / 100
	}
	return s
}

// FuzzPlan runs random worlds with users that come and go, and checks after
// each plan what must always hold.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		s := randomWorld(rand.New(rand.NewPCG(seed, 1)))
		s.giveFiles(rand.New(rand.NewPCG(seed, 11)))
		checkWorld(t, seed, s)
	})
}

// TestSuspends checks the same in worlds whose sleepers keep memory of GPUs and can be suspended: some were, and came back on another GPU.
func TestSuspends(t *testing.T) {
	suspended, moved := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := randomWorld(r)
		at := map[api.InstanceID][]api.DeviceID{}
		for k := range s.Functions {
			f := &s.Functions[k]
			if f.Need.Devices > 0 {
				f.Spec.Suspend = []string{api.SuspendAuto, api.SuspendOn, api.SuspendOff}[r.IntN(3)]
				n := s.nature[f.Spec.Name]
				n.perResidue[1] = f.Need.PerDevice * api.Bytes(r.IntN(40)) / 100
				n.perResidue[2] = n.perResidue[1]
			}
		}
		s.watch = func(actions []Action) {
			for _, a := range actions {
				switch {
				case a.Kind == Sleep && a.Level == api.Suspended:
					if s.function(a.Function).Spec.Suspend == api.SuspendOff {
						t.Fatalf("seed %d: %v, whose function is not to be suspended", seed, a)
					}
					suspended++
					at[a.Instance] = s.instance(a.Instance).Status.Devices
				case a.Kind == Wake && len(s.instance(a.Instance).Status.Devices) == 0 && !slices.Equal(a.Devices, at[a.Instance]):
					moved++
				}
			}
		}
		checkWorld(t, seed, s)
	}
	if suspended < 20 || moved < 3 {
		t.Errorf("%d suspended, %d moved: the worlds tell nothing", suspended, moved)
	}
}

// checkWorld has users of s come and go, and checks after each plan what must always hold.
func checkWorld(t *testing.T, seed uint64, s *sim) {
	r := rand.New(rand.NewPCG(seed, 7))
	var log []string
	fail := func(format string, args ...any) {
		t.Helper()
		log = append(log, s.tell()...)
		if len(log) > 60 {
			log = log[len(log)-60:]
		}
		t.Fatalf("seed %d at %s: %s\n%s\n%s", seed, s.now.Sub(s.start), fmt.Sprintf(format, args...), describe(s), strings.Join(log, "\n"))
	}
	for range 12 {
		for k := range s.Functions {
			if r.IntN(2) == 0 {
				s.use(s.Functions[k].Spec.Name, r.IntN(10)*r.IntN(2))
				s.busy(r, &s.Functions[k])
			}
		}
		plans := 0
		s.run(time.Duration(1+r.IntN(40))*time.Second, func() {
			if over := s.over(); over != "" {
				fail("more is given than there is: %s", over)
			}
			if over := s.truth(); over != "" {
				fail("more is in use than there is: %s", over)
			}
			if plans++; plans > 2000 {
				fail("it does not come to rest")
			}
			if s.restless {
				fail("plans go on acting without anything having changed")
			}
			checkPlan(s, fail)
		})
		log = append(log, s.tell()...)
	}
}

// TestNobodyStarves keeps random worlds busy for ten minutes. Every function that has users and can fit gets turns, and
// turns are long enough for work between the switches.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := randomWorld(r)
		for k := range s.Functions {
			s.Functions[k].Spec.MinScale = 0
			s.use(s.Functions[k].Spec.Name, r.IntN(10)*r.IntN(2))
		}
		s.run(10*time.Minute, nil)
		// A round gives each a turn: a stay, the switch before it, and a lower priority's patience once.
		round := time.Duration(len(s.Functions)) * (s.Policy.WithDefaults().MaxStay + 10*time.Second)
		for _, name := range sortedKeys(s.nature) {
			n := s.nature[name]
			if !n.starving.IsZero() {
				n.worst = max(n.worst, s.now.Sub(n.starving))
			}
			if n.worst > round {
				t.Errorf("seed %d: %s starved for %s, want at most %s\n%s\n%s", seed, name, n.worst, round, describe(s), strings.Join(s.tell(), "\n"))
				return
			}
		}
		if most := 10 * 60 / 2 * len(s.Functions); s.sleeps > most {
			t.Errorf("seed %d: %d sleeps in ten minutes", seed, s.sleeps)
		}
	}
}

// TestIdleBeforeBusy checks, in worlds with nothing but host memory, that work
// is interrupted only where everything idle together would not have made the room.
func TestIdleBeforeBusy(t *testing.T) {
	interrupted := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := randomWorld(r)
		s.Devices = s.Devices[:1]
		for k := range s.Functions {
			s.Functions[k].Spec.Memory.Devices, s.Functions[k].Need.Devices = 0, 0
		}
		s.watch = func(actions []Action) {
			gainers := map[api.FunctionName]bool{} // and others that wait
			busy := false
			for _, a := range actions {
				switch a.Kind {
				case Wait:
					gainers[a.Function] = true
				case Start, Wake:
					return
				}
				if a.For != "" {
					gainers[a.For] = true
					f := s.function(a.Function)
					busy = busy || f.Waiting+f.Running > 0 && s.instance(a.Instance).Status.State == api.Awake
				}
			}
			if !busy || len(gainers) != 1 {
				return // where several want room, one may have taken what was idle
			}
			interrupted++
			line := s.account(s.now)[0]
			room, need := max(0, line.Free), api.Bytes(0)
			for name := range gainers {
				need = s.function(name).Need.Host
			}
			for _, i := range s.Instances {
				f := s.function(i.Status.Function)
				idle := f.Waiting+f.Running == 0 && f.Spec.MinScale == 0
				if idle && i.Doing != DoingStart && i.Doing != DoingWake && i.Failures == 0 {
					room += i.Status.Memory.Host
				}
			}
			if room >= need {
				t.Errorf("seed %d at %s: %s are free or idle and %s are needed, but work is interrupted: %v\n%s", seed, s.now.Sub(s.start), room, need, actions, describe(s))
			}
		}
		for range 12 {
			for k := range s.Functions {
				if r.IntN(2) == 0 {
					s.use(s.Functions[k].Spec.Name, r.IntN(10)*r.IntN(2))
				}
			}
			s.run(time.Duration(1+r.IntN(40))*time.Second, nil)
		}
	}
	if interrupted < 100 {
		t.Errorf("only %d interruptions were seen: the worlds are too easy to tell anything", interrupted)
	}
}

// checkPlan checks the plan that would follow now.
func checkPlan(s *sim, fail func(string, ...any)) {
	before, after := s.snapshot(), s.snapshot()
	actions, next := Plan(after, s.now)
	if !reflect.DeepEqual(before, after) {
		fail("the plan changed its snapshot")
	}
	if again, at := Plan(after, s.now); !reflect.DeepEqual(actions, again) || !at.Equal(next) {
		fail("the same snapshot gives another plan:\n%v\n%v", actions, again)
	}
	if !next.IsZero() && !next.After(s.now) {
		fail("next look at %s, which is not later than %s", next, s.now)
	}
	seen := map[api.InstanceID]bool{}
	for _, a := range actions {
		if a.Reason == "" {
			fail("no reason for %v", a)
		}
		if a.Kind != Wait && a.Kind != Fail && a.Kind != Start {
			if seen[a.Instance] {
				fail("two actions for %s: %v", a.Instance, actions)
			}
			seen[a.Instance] = true
		}
		if a.Kind != Wait {
			fail("it goes on finding something to do without anything having changed: %v", a)
		}
	}
}

func describe(s *sim) string {
	var b strings.Builder
	for _, d := range s.Devices {
		fmt.Fprintf(&b, "device %s %s\n", d.ID, d.Capacity)
	}
	for _, f := range s.Functions {
		n := s.nature[f.Spec.Name]
		fmt.Fprintf(&b, "function %s needs %s min %d max %d conc %d prio %d sleep %s gone %s: users %d waiting %d running %d load %s wake %s sleep %s residue %v\n", f.Spec.Name, amountOf(f.Need), f.Spec.MinScale, f.Spec.MaxScale,
			f.Spec.Concurrency, f.Spec.Priority, f.Spec.SleepAfter, f.Spec.UnloadAfter, n.users, f.Waiting, f.Running, n.load, n.wake, n.sleep, n.residue)
	}
	for _, i := range s.Instances {
		fmt.Fprintf(&b, "instance %s %s level %d doing %d on %v holds %s since %s granted %t\n", i.Status.Instance, i.Status.State, i.Status.Level, i.Doing,
			i.Status.Devices, amountOf(i.Status.Memory), s.now.Sub(i.Since), i.Grant.Valid(s.now))
	}
	return b.String()
}
