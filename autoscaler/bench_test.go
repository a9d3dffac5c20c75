package autoscaler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// signals are Effects that say when they are called.
type signals struct {
	Effects
	started, woken chan time.Time
}

func (s signals) Start(_ context.Context, _ api.Function, id api.InstanceID, _ api.Grant) (api.InstanceID, error) {
	s.started <- time.Now()
	return id, nil
}

func (s signals) Wake(_ context.Context, i api.InstanceStatus, _ api.Grant) (api.InstanceStatus, error) {
	s.woken <- time.Now()
	i.State, i.Level = api.Awake, 0
	i.Seq++
	return i, nil
}

func (s signals) Sleep(_ context.Context, i api.InstanceStatus, l api.Level, _ uint64, _ api.Drain) (api.InstanceStatus, error) {
	i.State, i.Level = api.Asleep, l
	i.Memory.Host = 1
	i.Seq++
	return i, nil
}

func (s signals) Grant(context.Context, api.Grant) error { return nil }

func (s signals) Revoke(context.Context, api.Grant) error { return nil }

func (s signals) State(_ context.Context, i api.InstanceStatus) (api.InstanceStatus, error) {
	return i, nil
}

// BenchmarkDemandToWake measures, in real time, from ObserveDemand to the call
// of Effects.Wake, among functions that have two instances each.
func BenchmarkDemandToWake(b *testing.B) {
	for _, functions := range []int{2, 100, 1000} {
		b.Run(fmt.Sprintf("functions=%d", functions), func(b *testing.B) {
			demandToWake(b, functions, []inventory.Device{{ID: api.HostMemory, Capacity: 150 * api.GiB}})
		})
	}
	var nodes []inventory.Device
	for n := range 1000 {
		name := fmt.Sprintf("node-%d", n)
		nodes = append(nodes, inventory.Device{ID: inventory.HostOf(name), Node: name, Capacity: 150 * api.GiB})
	}
	b.Run("functions=10000,nodes=1000", func(b *testing.B) { demandToWake(b, 10000, nodes) })
}

func demandToWake(b *testing.B, functions int, devices []inventory.Device) {
	fx := signals{woken: make(chan time.Time, 16), started: make(chan time.Time, 1024)}
	a, err := New(Config{Devices: devices}, fx, nil,
		slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError})), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	spec := api.Function{Memory: api.Memory{Host: api.GiB}}.WithDefaults()
	for f := range functions {
		spec.Name = api.FunctionName(fmt.Sprintf("default/f%03d", f))
		a.PutFunction(spec)
		for i := range 2 {
			a.ObserveInstance(api.InstanceStatus{Instance: api.InstanceID(fmt.Sprintf("f%03d-%d", f, i)), Function: spec.Name,
				State: api.Awake, Seq: 1, Node: devices[f%len(devices)].Node, Memory: api.Memory{Host: api.MiB}})
		}
	}
	a.Devices()
	name := api.FunctionName("default/f001")
	var total time.Duration
	at := time.Now()
	for b.Loop() {
		b.StopTimer()
		if err := a.Sleep(ctx, name, api.Level1); err != nil {
			b.Fatal(err)
		}
		a.Devices()
		b.StartTimer()
		at = at.Add(time.Second)
		began := time.Now()
		a.ObserveDemand(api.Demand{Function: name, Activator: "x", Waiting: 1, LastRequest: began, At: at})
		total += (<-fx.woken).Sub(began)
		b.StopTimer()
		at = at.Add(time.Second)
		a.ObserveDemand(api.Demand{Function: name, Activator: "x", At: at})
		a.Devices()
		b.StartTimer()
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/wake")
	cancel()
	<-done
}
