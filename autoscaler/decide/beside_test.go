package decide

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// besideWorld is a function of 3 GiB, of which 2 GiB are a file that its instances have in common, on a machine of 4.5 GiB.
func besideWorld(oneFile bool) *sim {
	s := newSim()
	s.Devices[0].Capacity = 4608 * api.MiB
	n := s.declare(api.Function{Name: "default/f", Memory: api.Memory{Host: 3 * api.GiB}, Concurrency: 1, MaxScale: 2, SleepAfter: time.Minute}.WithDefaults())
	n.file, n.residue[1] = 2*api.GiB, 256*api.MiB
	s.function("default/f").OneFile = oneFile
	return s
}

// TestBeside: a start and a wake beside one that has the file need only what is their own; without it, or where nobody has seen that
// they have one, all.
func TestBeside(t *testing.T) {
	s := besideWorld(true)
	s.use("default/f", 2)
	s.run(30*time.Second, func() {
		if over := s.over() + s.truth(); over != "" {
			t.Fatal(over)
		}
	})
	told := strings.Join(s.tell(), "\n")
	if len(s.Instances) != 2 || strings.Count(told, "needs 1 GiB of host, beside 2 GiB that are in memory there") != 1 {
		t.Fatalf("%d instances, want a second one that starts with what is its own:\n%s", len(s.Instances), told)
	}
	// One sleeps, and is woken beside the other one; that one's end does not give back what both have.
	s.use("default/f", 1)
	s.run(2*time.Minute, nil)
	s.tell()
	asleep := 0
	for _, i := range s.Instances {
		if i.Status.State == api.Asleep {
			asleep++
		}
	}
	s.use("default/f", 2)
	s.run(30*time.Second, func() {
		if over := s.over() + s.truth(); over != "" {
			t.Fatal(over)
		}
	})
	if l := s.account(s.now)[0]; asleep != 1 || l.Awake != 4*api.GiB {
		t.Errorf("%d slept; awake are %s, want two of 3 GiB that have 2 GiB in common:\n%s", asleep, l.Awake, strings.Join(s.tell(), "\n"))
	}

	s = besideWorld(false)
	s.use("default/f", 2)
	s.run(30*time.Second, nil)
	if told := strings.Join(s.tell(), "\n"); len(s.Instances) != 1 || !strings.Contains(told, "needs 3 GiB of host, free 1.5 GiB") {
		t.Errorf("%d instances of which nobody knows that they have a file in common, want one:\n%s", len(s.Instances), told)
	}
}

// TestBesideTheOneThatEnds: while one comes up beside another that ends, the file is charged once at every moment: with the one
// that ends as long as it is there, and then with the one that comes.
func TestBesideTheOneThatEnds(t *testing.T) {
	for name, what := range map[string]func(s *sim, other *Instance){
		"starting": func(_ *sim, other *Instance) { other.Status.State, other.Doing = api.Starting, DoingStart },
		"waking":   func(_ *sim, other *Instance) { other.Status.State, other.Doing = api.Asleep, DoingWake },
		"granted": func(_ *sim, other *Instance) {
			other.Status.State, other.Grant = api.Asleep, api.Grant{Instance: other.Status.Instance, Epoch: 1}
		},
		"awake, and not measured": func(s *sim, other *Instance) { other.Status.State, other.Since = api.Awake, s.now },
	} {
		s := besideWorld(true)
		s.Instances = []Instance{
			{Since: s.now, Status: api.InstanceStatus{Instance: "f-1", Function: "default/f", State: api.Awake, Memory: api.Memory{Host: 3 * api.GiB}, Shared: api.SharedMemory{File: "f", Bytes: 2 * api.GiB}}},
			{Since: s.now, Status: api.InstanceStatus{Instance: "f-2", Function: "default/f"}},
		}
		what(s, &s.Instances[1])
		for _, step := range []struct {
			doing        Doing
			gone         bool
			free, coming api.Bytes
		}{
			{free: 512 * api.MiB},
			{doing: DoingStop, free: 512 * api.MiB, coming: api.GiB},
			{gone: true, free: 1536 * api.MiB},
		} {
			s.Instances[0].Doing = step.doing
			if step.gone {
				s.Instances = s.Instances[1:]
			}
			shot := s.snapshot()
			l := newLedger(shot.Topology, shot.Functions, s.now)
			free := l.free[0]
			if coming := l.coming[0]; free != step.free || coming != step.coming {
				t.Errorf("%s beside one (doing %d, gone %t): free %s, coming %s; want %s, %s", name, step.doing, step.gone, free, coming, step.free, step.coming)
			}
		}
	}
}

// TestBesideIsUsed: random worlds, where the properties of plans are checked, have instances that come up beside others.
func TestBesideIsUsed(t *testing.T) {
	beside := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomWorld(r)
		s.giveFiles(rand.New(rand.NewPCG(seed, 11)))
		for range 6 {
			for k := range s.Functions {
				s.use(s.Functions[k].Spec.Name, r.IntN(10)*r.IntN(2))
			}
			s.run(20*time.Second, nil)
		}
		beside += strings.Count(fmt.Sprint(s.tell()), "in memory there")
	}
	if beside < 20 {
		t.Errorf("%d instances came up beside another one that has their file: the worlds tell nothing", beside)
	}
}

// share does what the loop does when instances have said what they have in common.
func (s *sim) share() {
	among := map[string][]*Instance{}
	for k := range s.Instances {
		i := &s.Instances[k]
		if s.function(i.Status.Function) == nil || i.Status.Shared.File == "" {
			i.Borne, i.Common = 0, 0
			continue
		}
		at := i.Status.Node + " " + i.Status.Shared.File
		among[at] = append(among[at], i)
	}
	for _, at := range sortedKeys(among) {
		Share(among[at])
		if f := s.function(among[at][0].Status.Function); len(among[at]) > 1 {
			f.OneFile = true
		}
	}
}

// giveFiles gives half of the functions a file that their instances have in common while they are up.
func (s *sim) giveFiles(r *rand.Rand) {
	for k := range s.Functions {
		f := &s.Functions[k]
		n := s.nature[f.Spec.Name]
		if r.IntN(2) == 0 {
			n.file = f.Need.Host * api.Bytes(1+r.IntN(9)) / 10
			n.residue[1] = min(n.residue[1], f.Need.Host-n.file) // it is not in memory asleep
			n.residue[2] = min(n.residue[2], n.residue[1])
			f.Spec.MaxScale, f.OneFile = 2+r.IntN(3), r.IntN(2) == 0
		}
	}
}

// truth says on which node more is really in use than there is, whatever was said of it; empty for none.
func (s *sim) truth() string {
	used, common := map[string]api.Bytes{}, map[string]bool{}
	for k := range s.Instances {
		i := &s.Instances[k]
		f, n := s.function(i.Status.Function), s.nature[i.Status.Function]
		if phase := phaseOf(i); i.Status.State == api.Asleep && phase != phaseRising {
			if i.Status.Level == api.Suspended {
				used[i.Status.Node] += s.suspended[i.Status.Instance]
			} else {
				used[i.Status.Node] += n.residue[i.Status.Level]
			}
			continue
		}
		used[i.Status.Node] += f.Need.Host - n.file
		if at := i.Status.Node + " " + string(f.Spec.Name); !common[at] {
			common[at] = true
			used[i.Status.Node] += n.file
		}
	}
	for _, d := range s.Devices {
		if d.Node == "" && d.ID != api.HostMemory || d.Node != "" && !d.IsHost() {
			continue
		}
		if used[d.Node] > d.Capacity {
			return fmt.Sprintf("%s are in use of %s of %s", used[d.Node], d.Capacity, d.ID)
		}
	}
	return ""
}
