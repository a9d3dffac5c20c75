package decide

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// drawn is a cluster in which anything may come at any time: what it is in never comes of what was planned.
type drawn struct {
	Snapshot
	r   *rand.Rand
	now time.Time
}

// draw makes a cluster of so many functions on so many nodes with 8 GPUs each.
func draw(r *rand.Rand, functions, nodes int) *drawn {
	d := &drawn{r: r, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	d.Policy.MaxFailures = 100
	if r.IntN(2) == 0 { // turns come and go
		d.Policy.TurnWait, d.Policy.MinStay, d.Policy.IdleGrace = time.Second, time.Duration(1+r.IntN(3000))*time.Millisecond, time.Second
		d.Policy.Patience, d.Policy.MaxStay = 2+r.IntN(8), 5*time.Second
	}
	for n := range nodes {
		name := fmt.Sprintf("n%02d", n)
		d.Devices = append(d.Devices, inventory.Device{ID: inventory.HostOf(name), Node: name, Capacity: api.Bytes(60+r.IntN(100)) * api.GiB})
		for g := range 8 {
			d.Devices = append(d.Devices, inventory.Device{ID: api.DeviceID(fmt.Sprintf("%s-%d", name, g)), Node: name, Capacity: 80 * api.GiB, Cost: float64(r.IntN(2))})
		}
	}
	for k := range functions {
		d.Functions = append(d.Functions, d.function(fmt.Sprintf("default/f%03d", k)))
	}
	d.Sort()
	for k := range d.Functions {
		d.demand(&d.Functions[k])
		d.instances(&d.Functions[k])
	}
	return d
}

// ago is a time before now, seldom long before.
func (d *drawn) ago(most time.Duration) time.Time {
	part := d.r.Float64()
	return d.now.Add(-time.Duration(part * part * float64(most)))
}

func (d *drawn) function(name string) Function {
	r := d.r
	spec := api.Function{Name: api.FunctionName(name), Concurrency: 1 + r.IntN(4), MaxScale: 1 + r.IntN(2), Priority: r.IntN(3) - 1,
		Memory: api.Memory{Host: api.Bytes(1+r.IntN(12)) * api.GiB, Devices: 1, PerDevice: api.Bytes(10<<r.IntN(4)) * api.GiB}}
	switch r.IntN(10) {
	case 0:
		spec.Memory.Devices, spec.Memory.PerDevice = 0, 0
	case 1:
		spec.Memory.Devices = 2
	case 2:
		spec.MinScale = 1
	case 3, 4:
		spec.VariantOf = api.ModelName(fmt.Sprintf("m%d", r.IntN(4)))
	}
	f := Function{Spec: spec.WithDefaults(), Need: spec.Memory, Certain: true, OneFile: len(d.Functions)%2 == 0}
	f.Past.Load, f.Past.Wake[1] = time.Duration(1+r.IntN(40))*time.Second, time.Duration(1+r.IntN(2000))*time.Millisecond
	f.Past.Asleep[1] = api.Memory{Host: api.Bytes(1+r.IntN(4)) * api.GiB, Devices: spec.Memory.Devices, PerDevice: api.GiB}
	f.Past.Asleep[2] = api.Memory{Host: api.GiB / 2, Devices: spec.Memory.Devices, PerDevice: api.GiB / 2}
	f.Past.Nodes = []string{d.Devices[r.IntN(len(d.Devices))].Node}
	for range r.IntN(2) * 6 {
		f.Past = f.Past.Arrived(time.Duration(1+r.IntN(30))*time.Second, d.now)
	}
	return f
}

// demand draws what is wanted of f.
func (d *drawn) demand(f *Function) {
	r := d.r
	f.Waiting, f.Running, f.NeededAt, f.LastRequest, f.Shared = 0, 0, nil, d.ago(time.Minute), 0
	switch r.IntN(5) {
	case 0:
		f.Waiting, f.WaitingSince = 1+r.IntN(4), d.ago(30*time.Second)
		if f.Spec.VariantOf != "" {
			f.Shared = f.Waiting
		}
	case 1, 2:
		f.Running = 1 + r.IntN(4)
	}
	if f.RetryAt = (time.Time{}); r.IntN(10) == 0 {
		f.Failures, f.RetryAt, f.LastError = 1, d.now.Add(time.Duration(r.IntN(5000))*time.Millisecond), "no"
	}
}

// instances draws f's instances.
func (d *drawn) instances(f *Function) {
	r := d.r
	d.Instances = slices.DeleteFunc(d.Instances, func(i Instance) bool { return i.Status.Function == f.Spec.Name })
	free := map[api.DeviceID]api.Bytes{}
	for _, l := range Account(d.Snapshot, d.now) {
		free[l.ID] = l.Free
	}
	for k := range r.IntN(4) {
		node := r.IntN(len(d.Devices)/9) * 9
		i := Instance{Since: d.ago(time.Minute), From: inventory.Stopped, Status: api.InstanceStatus{Node: d.Devices[node].Node, Function: f.Spec.Name,
			Instance: api.InstanceID(fmt.Sprintf("%s-%d-%d", f.Spec.Name.Name(), k, r.IntN(3))), State: api.Asleep, Level: api.Level1, Memory: f.Past.Asleep[1]}}
		fits := free[d.Devices[node].ID] >= f.Need.Host
		first := r.IntN(7)
		for g := range f.Need.Devices {
			dev := d.Devices[node+1+first+g]
			fits = fits && free[dev.ID] >= f.Need.PerDevice
			i.Status.Devices = append(i.Status.Devices, dev.ID)
		}
		if fits && r.IntN(4) > 0 {
			i.Status.State, i.Status.Level, i.Status.Memory = api.Awake, 0, f.Need
			if f.OneFile && len(d.Instances)%3 > 0 { // else it has not yet said so
				i.Status.Shared = api.SharedMemory{File: "f", Bytes: f.Need.Host / 2}
			}
		}
		switch r.IntN(12) {
		case 0:
			i.RetryAt = d.now.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
		case 1:
			i.Settles = d.now.Add(time.Duration(r.IntN(500)) * time.Millisecond)
		case 2:
			i.Doing, i.Level = DoingSleep, api.Level1
		case 3:
			if fits {
				i.Doing = DoingWake
			}
		case 4:
			i.Doing = DoingStop
		}
		d.Instances = append(d.Instances, i)
	}
	d.Sort()
}

// event changes something of f, and puts it.
func (d *drawn) event(w *World, f *Function) {
	switch d.r.IntN(6) {
	case 0, 1:
		d.demand(f)
	case 2, 3:
		d.demand(f)
		d.instances(f)
	case 4:
		f.LastRequest = d.now
		if f.Waiting > 0 {
			f.WaitingSince = d.ago(30 * time.Second)
		}
	case 5:
		f.Past.Load = time.Duration(1+d.r.IntN(40)) * time.Second
		f.Past = f.Past.Arrived(time.Duration(1+d.r.IntN(30))*time.Second, d.now)
	}
	if d.r.IntN(8) == 0 { // it is another record with the same content
		w.Remove(f.Spec.Name)
	}
	d.put(w, f)
}

// put puts f and its instances into w.
func (d *drawn) put(w *World, f *Function) {
	c := *f
	for _, i := range d.Instances {
		if i.Status.Function == f.Spec.Name {
			c.Instances = append(c.Instances, &i)
		}
	}
	w.Put(&c)
}

// TestDrawn draws events and times between them, and compares the plans of a world in which what is known of
// waiting demands is kept with those of a new one, in which each is served from nothing.
func TestDrawn(t *testing.T) {
	plans, searches, kept := 0, 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		d := draw(r, 60+r.IntN(60), 8+r.IntN(3))
		w := NewWorld(d.Policy, d.Devices)
		for k := range d.Functions {
			d.put(w, &d.Functions[k])
		}
		step := []time.Duration{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, time.Second}[r.IntN(4)]
		calm := 1 + 7*r.IntN(2) // every so many plans come of an event
		for n := range 60 {
			whole, next := Plan(d.Snapshot, d.now)
			got, look := w.Plan(d.now)
			if !reflect.DeepEqual(whole, got) {
				t.Fatalf("seed %d, plan %d: the world plans something else (-whole +world):\n%s", seed, n, cmp.Diff(whole, got))
			}
			if !next.IsZero() && (look.IsZero() || look.After(next)) {
				t.Fatalf("seed %d, plan %d: the world looks again at %s, the whole at %s", seed, n, look, next)
			}
			plans++
			if d.now = d.now.Add(time.Duration(r.ExpFloat64() * float64(step))); r.IntN(calm) == 0 {
				d.event(w, &d.Functions[r.IntN(len(d.Functions))])
			}
		}
		again, anew := w.searches.Counts()
		kept, searches = kept+again, searches+again+anew
	}
	if searches < 10*plans || kept < searches/2 {
		t.Errorf("%d plans with %d searches, of which %d were answered by what was found before: that tells nothing", plans, searches, kept)
	}
}
