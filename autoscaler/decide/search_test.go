package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide/internal/memo"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// shown is a world of two nodes, and of functions whose fingerprints are looked at: one that is busy, one that is idle, and
// one that sleeps, each on the first node, the busy one on the second too.
type shown struct {
	w                  *World
	now                time.Time
	busy, idle, asleep Function
	is                 map[api.FunctionName][]*Instance
	watch              memo.Watch
}

func newShown() *shown {
	s := &shown{now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), is: make(map[api.FunctionName][]*Instance)}
	var devices []inventory.Device
	for _, n := range []string{"a", "b"} {
		devices = append(devices, inventory.Device{ID: inventory.HostOf(n), Node: n, Capacity: 100 * api.GiB},
			inventory.Device{ID: api.DeviceID("gpu-" + n), Node: n, Capacity: 80 * api.GiB})
	}
	s.w = NewWorld(Policy{}, devices)
	add := func(f *Function, node string, state api.State) {
		i := &Instance{Since: s.now.Add(-time.Hour), Status: api.InstanceStatus{Function: f.Spec.Name, Instance: api.InstanceID(f.Spec.Name.Name() + "-" + node),
			State: state, Node: node, Devices: []api.DeviceID{api.DeviceID("gpu-" + node)}, Memory: f.Need}}
		if state == api.Asleep {
			i.Status.Level, i.Status.Memory = api.Level1, api.Memory{Host: api.GiB, Devices: 1, PerDevice: api.GiB}
		}
		s.is[f.Spec.Name] = append(s.is[f.Spec.Name], i)
	}
	for _, f := range []*Function{&s.busy, &s.idle, &s.asleep} {
		name := map[*Function]string{&s.busy: "busy", &s.idle: "idle", &s.asleep: "asleep"}[f]
		f.Spec = api.Function{Name: api.NewFunctionName("", name), Concurrency: 4, MaxScale: 2, Memory: api.Memory{Host: 4 * api.GiB, Devices: 1, PerDevice: 10 * api.GiB}}.WithDefaults()
		f.Need, f.Certain, f.LastRequest = f.Spec.Memory, true, s.now.Add(-time.Minute)
	}
	s.busy.Running = 5
	add(&s.busy, "a", api.Awake)
	add(&s.busy, "b", api.Awake)
	add(&s.idle, "a", api.Awake)
	add(&s.asleep, "a", api.Asleep)
	s.watch = memo.NewWatch(2)
	s.plan()
	return s
}

// plan puts everything, plans, and says which nodes are not what they were.
func (s *shown) plan() []int32 {
	for _, f := range []*Function{&s.busy, &s.idle, &s.asleep} {
		f.Instances = s.is[f.Spec.Name]
		s.w.Put(f)
	}
	s.w.Plan(s.now)
	return slices.Clone(s.watch.Dirty(&s.w.searches.Cells))
}

// TestFingerprint checks that a node's fingerprint is another whenever anything has changed that a search reads there, and
// the same when nothing has.
func TestFingerprint(t *testing.T) {
	first, both, none := []int32{0}, []int32{0, 1}, []int32(nil)
	instance := func(name string, edit func(i *Instance)) func(*shown) {
		return func(s *shown) { edit(s.is[api.NewFunctionName("", name)][0]) }
	}
	for _, c := range []struct {
		name string
		edit func(s *shown)
		want []int32
	}{
		{"nothing", func(*shown) {}, none},
		{"a request more at one that works", func(s *shown) { s.busy.Running++; s.busy.LastRequest = s.now }, none},
		{"what was refused", func(s *shown) { s.idle.RefusedAt = s.now }, none},
		{"the idle one works", func(s *shown) { s.idle.Running = 1 }, first},
		{"fewer are needed", func(s *shown) { s.busy.Running = 1 }, both},
		{"more are needed", func(s *shown) { s.busy.Running = 20; s.busy.Spec.MaxScale = 5 }, both},
		{"requests wait for the sleeper", func(s *shown) { s.asleep.Waiting = 1 }, first},
		{"an idle one was used", func(s *shown) { s.idle.LastRequest = s.now }, first},
		{"a sleeper was used", func(s *shown) { s.asleep.LastRequest = s.now }, first},
		{"a sleeper was needed", func(s *shown) { s.asleep.NeededAt = []time.Time{s.now} }, first},
		{"an idle one was needed", func(s *shown) { s.idle.NeededAt = []time.Time{s.now} }, first},
		{"two of a busy one were needed", func(s *shown) { s.busy.NeededAt = []time.Time{s.now, s.now} }, none},
		{"priority", func(s *shown) { s.busy.Spec.Priority = 1 }, both},
		{"min-scale", func(s *shown) { s.idle.Spec.MinScale = 1 }, first},
		{"level of sleep", func(s *shown) { s.idle.Spec.SleepLevel = api.Level2 }, first},
		{"two pods", func(s *shown) { s.asleep.Spec.DualPods = true }, first},
		{"need", func(s *shown) { s.asleep.Need.PerDevice++ }, first},
		{"order", func(s *shown) { s.asleep.Order = OrderSleep }, first},
		{"loading takes longer", func(s *shown) { s.busy.Past.Load = time.Minute }, both},
		{"waking takes longer", func(s *shown) { s.busy.Past.Wake[1] = time.Minute }, both},
		{"falling asleep takes longer", func(s *shown) { s.busy.Past.Sleep = time.Minute }, both},
		{"what sleepers keep", func(s *shown) { s.busy.Past.Asleep[1].Host = api.GiB }, both},
		{"arrivals", func(s *shown) { s.idle.Past = s.idle.Past.Arrived(time.Second, s.now) }, first},
		{"state", instance("idle", func(i *Instance) { i.Status.State = api.Unhealthy }), first},
		{"level", instance("asleep", func(i *Instance) { i.Status.Level = api.Level2 }), first},
		{"memory", instance("asleep", func(i *Instance) { i.Status.Memory.Host++ }), first},
		{"call under way", instance("asleep", func(i *Instance) { i.Doing = DoingGrant }), first},
		{"grant", instance("asleep", func(i *Instance) { i.Grant.Instance = i.Status.Instance }), first},
		{"awake since", instance("busy", func(i *Instance) { i.Since = s0.Add(-time.Minute) }), first},
		{"next try", instance("busy", func(i *Instance) { i.RetryAt = s0.Add(time.Minute) }), first},
		{"settles", instance("asleep", func(i *Instance) { i.Settles = s0.Add(time.Minute) }), first},
		{"failures", instance("busy", func(i *Instance) { i.Failures++ }), first},
		{"requests of its pod", instance("asleep", func(i *Instance) { i.Status.Shrunk = true }), first},
		{"another node", instance("idle", func(i *Instance) { i.Status.Node, i.Status.Devices = "b", []api.DeviceID{"gpu-b"} }), both},
		{"another ID", instance("idle", func(i *Instance) { i.Status.Instance = "idle-x" }), first},
		{"it is gone", func(s *shown) { delete(s.is, s.idle.Spec.Name) }, first},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShown()
			if got := s.plan(); len(got) > 0 {
				t.Fatalf("nothing has changed, and %v are dirty", got)
			}
			c.edit(s)
			if got := s.plan(); !slices.Equal(got, c.want) {
				t.Errorf("%v are dirty, want %v", got, c.want)
			}
		})
	}
}

// s0 is the time of all that is shown.
var s0 = newShown().now

// TestFingerprintOfAPlan checks that what a plan books and deals with is in the fingerprints of the nodes that it concerns, and is
// taken out when it ends.
func TestFingerprintOfAPlan(t *testing.T) {
	s := newShown()
	p := s.w.begin(s.now)
	check := func(name string, want ...int32) {
		t.Helper()
		if got := s.watch.Dirty(&s.w.searches.Cells); !slices.Equal(got, want) {
			t.Errorf("%s: %v are dirty, want %v", name, got, want)
		}
	}
	check("it begins")
	p.spend(3, -api.GiB, 0)
	check("memory is booked", 1)
	p.spend(3, 0, api.GiB)
	check("memory that is coming is booked", 1)
	p.take(s.asleep.Instances[0])
	check("a sleeper is dealt with", 0)
	p.take(s.busy.Instances[0])
	check("one of two instances is dealt with", 0, 1)
	s.w.end(p)
	check("it ends", 0, 1)
	if s.plan(); len(s.w.free) > 0 {
		fresh := newShown()
		fresh.plan()
		if !slices.Equal(s.w.free, fresh.w.free) || !slices.Equal(s.w.coming, fresh.w.coming) {
			t.Errorf("free %v and coming %v, want %v and %v", s.w.free, s.w.coming, fresh.w.free, fresh.w.coming)
		}
	}
}

// TestReplacedRecord checks that an answer which refers to an instance is not kept when another record takes its place, though it says
// the same.
func TestReplacedRecord(t *testing.T) {
	s := newShown()
	other := *s.idle.Instances[0]
	s.is[s.idle.Spec.Name] = []*Instance{&other}
	if got := s.plan(); !slices.Equal(got, []int32{0}) {
		t.Errorf("%v are dirty, want the first node", got)
	}
}

// TestFingerprintOfASurplus checks that it matters since when an instance is not needed, once it is not.
func TestFingerprintOfASurplus(t *testing.T) {
	s := newShown()
	s.busy.Running = 1
	s.plan()
	s.busy.NeededAt = []time.Time{s.now, s.now.Add(-time.Second)}
	if got := s.plan(); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("%v are dirty, want both nodes", got)
	}
}
