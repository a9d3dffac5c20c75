package autoscaler

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// places are Effects that only note where instances are started.
type places struct {
	Effects
	started chan api.Grant
}

func (p places) Start(_ context.Context, _ api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	p.started <- g
	return id, nil
}

func (p places) State(_ context.Context, i api.InstanceStatus) (api.InstanceStatus, error) {
	return i, nil
}

func nodeOf(name string, gpus ...api.DeviceID) []inventory.Device {
	ds := []inventory.Device{{ID: inventory.HostOf(name), Node: name, Capacity: 16 * api.GiB}}
	for _, id := range gpus {
		ds = append(ds, inventory.Device{ID: id, Node: name, Capacity: 24 * api.GiB})
	}
	return ds
}

// TestNodes starts an instance on one of two nodes, books it with that node's host, and
// starts another where there is a node when the first has gone.
func TestNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fx := places{started: make(chan api.Grant, 8)}
		n1, n2 := nodeOf("n1", "gpu-a"), nodeOf("n2", "gpu-b", "gpu-c")
		a, err := New(Config{Devices: append(append([]inventory.Device(nil), n1...), n2...)}, fx, nil, slog.New(slog.NewTextHandler(io.Discard, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		expectRest(a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		defer func() { cancel(); <-done }()

		spec := api.Function{Name: "default/f", Memory: api.Memory{Host: 2 * api.GiB, Devices: 2, PerDevice: 10 * api.GiB}}.WithDefaults()
		a.PutFunction(spec)
		demand := func() {
			a.ObserveDemand(api.Demand{Function: spec.Name, Activator: "x", Waiting: 1, LastRequest: time.Now(), At: time.Now()})
			synctest.Wait()
		}
		demand()
		g := <-fx.started
		if got := a.view(a.functions[spec.Name]).Instances[0].Node; got != "n2" || len(g.Devices) != 2 || g.Devices[0] != "gpu-b" {
			t.Errorf("a start of two GPUs is on %s and %v, want n2, which has two", got, g.Devices)
		}
		free := func() map[api.DeviceID]api.Bytes {
			m := map[api.DeviceID]api.Bytes{}
			for _, l := range a.Devices() {
				m[l.ID] = l.Free
			}
			return m
		}
		if f := free(); f["n1/host"] != 16*api.GiB || f["n2/host"] != 14*api.GiB || f["gpu-c"] != 14*api.GiB {
			t.Errorf("free is %v", f)
		}
		// It turns out to run elsewhere: the account follows.
		a.ObserveInstance(api.InstanceStatus{Instance: g.Instance, Function: spec.Name, State: api.Awake, Seq: 1, Node: "n1", Devices: []api.DeviceID{"gpu-a"},
			Memory: api.Memory{Host: 2 * api.GiB, Devices: 1, PerDevice: 10 * api.GiB}})
		synctest.Wait()
		if f := free(); f["n1/host"] != 14*api.GiB || f["n2/host"] != 16*api.GiB || f["gpu-a"] != 14*api.GiB || f["gpu-c"] != 24*api.GiB {
			t.Errorf("after its report free is %v", f)
		}
		// Its node goes, then it reports that it sleeps there (before, it could be woken): another one is started.
		a.SetDevices(n2)
		synctest.Wait()
		a.ObserveInstance(api.InstanceStatus{Instance: g.Instance, Function: spec.Name, State: api.Asleep, Level: 1, Seq: 2, Node: "n1", Devices: []api.DeviceID{"gpu-a"}})
		demand()
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case g := <-fx.started:
			if len(g.Devices) != 2 || g.Devices[0] != "gpu-b" {
				t.Errorf("the second start is on %v", g.Devices)
			}
		default:
			t.Errorf("nothing is started when the node has gone: %v", a.Why(spec.Name))
		}
	})
}

func TestCheckDevices(t *testing.T) {
	for name, c := range map[string]struct {
		devices []inventory.Device
		want    string
	}{
		"no device":           {nil, "want a host's memory"},
		"a GPU first":         {[]inventory.Device{{ID: "gpu-a"}}, "want a host's memory"},
		"a node without host": {append(nodeOf("n1"), inventory.Device{ID: "gpu-b", Node: "n2"}), "want a device n2/host"},
		"twice":               {append(nodeOf("n1"), nodeOf("n1")...), "want one of that name"},
		"others below zero":   {[]inventory.Device{{ID: api.HostMemory, Others: -1}}, "what others use"},
		"one machine":         {[]inventory.Device{{ID: api.HostMemory}, {ID: "gpu-a"}}, ""},
		"two nodes":           {append(nodeOf("n1", "gpu-a"), nodeOf("n2")...), ""},
	} {
		err := checkDevices(c.devices)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: have %v, want %q", name, err, c.want)
		}
	}
}
