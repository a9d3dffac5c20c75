package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/flight"
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

// BenchmarkRecord measures the record at the rates of events of three loads: bytes a day, the share of a core, and the
// time to replay a round. Each operation is one event; demands and reports of instances take turns.
func BenchmarkRecord(b *testing.B) {
	for _, load := range []struct {
		name                  string
		functions, busy, rate int
	}{{"day", 16, 8, 23}, {"busy", 16, 16, 53}, {"many", 1000, 100, 288}} {
		b.Run(load.name, func(b *testing.B) {
			folder := b.TempDir()
			a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 100 * api.TiB}}, Record: flight.Config{Folder: folder, MostBytes: 1 << 30}},
				signals{}, nil, slog.New(slog.DiscardHandler), nil)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error)
			go func() { done <- a.Run(ctx) }()
			all := make([]api.InstanceStatus, load.functions)
			for f := range all {
				name := api.NewFunctionName("default", fmt.Sprintf("model-%04d", f))
				a.PutFunction(api.Function{Name: name, Memory: api.Memory{Host: api.GiB}, SleepAfter: time.Hour}.WithDefaults())
				if f >= load.busy {
					continue
				}
				all[f] = api.InstanceStatus{Instance: api.InstanceID(name.Name() + "-1"), Function: name, State: api.Awake, Seq: 1, PID: 7, Memory: api.Memory{Host: api.GiB}}
				a.ObserveInstance(all[f])
			}
			tick := time.NewTicker(time.Second / time.Duration(load.rate))
			defer tick.Stop()
			event := func(n int) {
				at := <-tick.C
				s := &all[n/4%load.busy]
				if n%4 > 0 {
					a.ObserveDemand(api.Demand{Function: s.Function, Activator: "activator-7f9c", Running: 1 + n%3, LastRequest: at, At: at})
					return
				}
				s.Seq++
				s.Load = &api.Load{Running: rand.IntN(8), KVUsage: rand.Float64(), TokensPerSecond: 900 * rand.Float64(), PromptTokensPerSecond: 9000 * rand.Float64(),
					TTFT: time.Duration(rand.Int64N(int64(time.Second)))}
				a.ObserveInstance(*s)
			}
			n := 0
			for ; n < 3*load.rate; n++ { // the first state is written
				event(n)
			}
			began, bytes, cost := time.Now(), recordSize(b, folder), a.round.rec.Cost()
			for b.Loop() {
				event(n)
				n++
			}
			took := time.Since(began)
			b.ReportMetric(float64(recordSize(b, folder)-bytes)*float64(24*time.Hour)/float64(took)/1e6, "MB/day")
			b.ReportMetric(100*float64(a.round.rec.Cost()-cost)/float64(took), "%core")
			cancel()
			<-done
			b.ReportMetric(replayTime(b, folder), "µs/round")
		})
	}
}

func recordSize(b *testing.B, folder string) (sum int64) {
	files, err := flight.Files(folder)
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		sum += f.Size
	}
	return sum
}

// replayTime replays a record, whose decisions must be the same, and returns the microseconds of a round.
func replayTime(b *testing.B, folder string) float64 {
	segments, err := flight.Open(folder)
	if err != nil {
		b.Fatal(err)
	}
	rounds, began := 0, time.Now()
	for _, s := range segments {
		r, err := NewReplay(s)
		for err == nil {
			var round Round
			if round, err = r.Next(); err == nil && !reflect.DeepEqual(round.Decided, round.Recorded) {
				b.Fatalf("the replay decides otherwise at %s", round.At)
			}
			rounds++
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
	return float64(time.Since(began).Microseconds()) / float64(max(1, rounds))
}
