package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// benchCluster is a running fleet. It is not safe for concurrent use.
type benchCluster struct {
	Snapshot
	Now    time.Time
	before Function // the state before the last event
}

// benchGPUs is the number of GPUs of each node.
const benchGPUs = 8

// benchState is the state of a function of a cluster.
type benchState int

// States of functions.
const (
	benchBusy   benchState = iota // awake, with running requests
	benchAsleep                   // one sleeper
	benchGone                     // no instance
)

// benchStateOf returns the state of the kth function: of ten, 4 are busy, 5 asleep and 1 is gone.
func benchStateOf(k int) benchState {
	switch k % 10 {
	case 0, 2, 4, 6:
		return benchBusy
	case 9:
		return benchGone
	}
	return benchAsleep
}

// newCluster returns a cluster of so many functions on so many nodes with 8 GPUs each, at rest: every standing grant that has
// room is given. Of twenty functions one needs no GPU, one needs two and the others one; half of the busy ones have a
// sleeper in addition to the awake instance.
func newCluster(functions, nodes int) *benchCluster {
	c := &benchCluster{Now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	var devices []inventory.Device
	for n := range nodes {
		name := fmt.Sprintf("node-%04d", n)
		devices = append(devices, inventory.Device{ID: inventory.HostOf(name), Node: name, Capacity: api.TiB, Total: api.TiB})
		for g := range benchGPUs {
			devices = append(devices, inventory.Device{ID: benchGPU(n*benchGPUs + g), Node: name, Capacity: 80 * api.GiB, Total: 80 * api.GiB})
		}
	}
	c.Topology = NewTopology(devices)
	place := 0
	for k := range functions {
		f := c.function(k)
		s := benchStateOf(k)
		if s == benchBusy {
			f.Running, f.NeededAt, f.LastRequest = 1, []time.Time{c.Now}, c.Now
			c.add(f, api.Awake, place, nodes)
			place++
		}
		if s == benchAsleep || s == benchBusy && k%20 < 10 {
			f.LastRequest = c.Now.Add(-time.Duration(1+k%600) * time.Second)
			c.add(f, api.Asleep, place, nodes)
			place++
		}
		c.Functions = append(c.Functions, f)
	}
	c.rest()
	return c
}

func benchGPU(g int) api.DeviceID { return api.DeviceID(fmt.Sprintf("GPU-%08d", g)) }

// function declares the kth function.
func (c *benchCluster) function(k int) *Function {
	spec := api.Function{Name: api.NewFunctionName("models", fmt.Sprintf("f%05d", k)), Concurrency: 8, MaxScale: 4,
		Memory: api.Memory{Host: 4 * api.GiB, Devices: 1, PerDevice: api.Bytes(20+k%20) * api.GiB}, SleepAfter: time.Hour, UnloadAfter: 24 * time.Hour}
	switch k % 20 {
	case 0:
		spec.Memory.Devices, spec.Memory.PerDevice = 0, 0
	case 1:
		spec.Memory.Devices = 2
	}
	f := &Function{Spec: spec.WithDefaults(), Need: spec.Memory, Certain: true}
	f.Past.Load, f.Past.Wake[1], f.Past.Sleep = time.Minute, time.Second, time.Second
	f.Past.Asleep[1] = api.Memory{Host: 8 * api.GiB, Devices: spec.Memory.Devices, PerDevice: api.GiB}
	f.Past.Asleep[2] = api.Memory{Host: api.GiB, Devices: spec.Memory.Devices, PerDevice: api.GiB}
	return f
}

// add places an instance of f.
func (c *benchCluster) add(f *Function, s api.State, place, nodes int) {
	g := place * 7 % (nodes * benchGPUs)
	i := &Instance{Since: c.Now.Add(-time.Minute), From: inventory.Stopped, Status: api.InstanceStatus{
		Instance: api.InstanceID(fmt.Sprintf("%s-%06d", f.Spec.Name.Name(), place)), Function: f.Spec.Name,
		State: s, Seq: 1, Concurrency: 8, Memory: f.Need, Node: fmt.Sprintf("node-%04d", g/benchGPUs)}}
	if s == api.Asleep {
		i.Status.Level, i.Status.Memory, i.From = api.Level1, f.Past.Asleep[1], api.Level1
	}
	for d := range f.Need.Devices {
		i.Status.Devices = append(i.Status.Devices, benchGPU(g/benchGPUs*benchGPUs+(g+d)%benchGPUs))
	}
	f.Add(i)
}

// rest gives the grants that there is room for.
func (c *benchCluster) rest() {
	for range 10 {
		actions, _ := c.Plan()
		quiet := true
		for _, a := range actions {
			switch i := c.instance(a); a.Kind {
			case Grant:
				i.Grant = api.Grant{Instance: a.Instance, Function: a.Function, Epoch: 1, Devices: a.Devices, Memory: a.Memory, Expires: a.Expires}
				i.GrantedAt, quiet = c.Now, false
			case Revoke:
				i.Grant, quiet = api.Grant{}, false
			}
		}
		if quiet {
			return
		}
	}
}

// instance returns the instance of an action; nil: there is none.
func (c *benchCluster) instance(a Action) *Instance {
	k, _ := slices.BinarySearchFunc(c.Functions, a.Function, func(f *Function, name api.FunctionName) int { return cmp.Compare(f.Spec.Name, name) })
	for _, i := range c.Functions[k].Instances {
		if i.Status.Instance == a.Instance {
			return i
		}
	}
	return nil
}

// Plan plans.
func (c *benchCluster) Plan() ([]Action, time.Time) { return Plan(c.Snapshot, c.Now) }

// Event changes the kth function: a busy function gets one running request more or less, for any other requests begin to wait.
func (c *benchCluster) Event(k int) {
	c.Now = c.Now.Add(time.Millisecond)
	f := c.Functions[k]
	c.before = *f
	if benchStateOf(k) == benchBusy {
		f.Running = 1 + int(c.Now.UnixMilli()%4)
		return
	}
	f.Waiting, f.WaitingSince, f.LastRequest = 1, c.Now, c.Now
	for _, i := range f.Instances { // no activator wakes it
		i.GrantedAt = c.Now.Add(-time.Minute)
		f.WaitingSince = c.Now.Add(-time.Second)
	}
}

// Undo undoes the last event, on the kth function.
func (c *benchCluster) Undo(k int) {
	f, b := c.Functions[k], &c.before
	f.Running, f.Waiting, f.WaitingSince, f.LastRequest = b.Running, b.Waiting, b.WaitingSince, b.LastRequest
}
