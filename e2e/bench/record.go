// The benchmark record measures the cost of an autoscaler's flight record, and says whether the gates hold:
//
//	go run ./e2e/bench record -o docs/bench/record.json
//
// The autoscaler of production decides for simulated instances that follow every order, in real time, for a minute at
// each load:
//
//  1. 16 GPUs by day: 16 functions, of which 8 have requests at any time, one every two seconds each; some take turns every ten seconds
//  2. 16 GPUs, all busy: all 16 have requests, one every second each
//  3. 1,000 functions, of which 100 have requests at any time
//
// A function with requests sends a demand each second and two more for each request, and its instance a load every two
// seconds. The measured values are the growth of the record after its first ten seconds, and the time spent on
// recording, including waits for the processor. Both are multiplied up to a day. Then a record is replayed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// load is one that is measured.
type recordLoad struct {
	name            string
	functions, busy int
	every           time.Duration // between requests of a busy function
	gated           bool
}

var recordLoads = []recordLoad{
	{"16 GPUs by day", 16, 8, 2 * time.Second, true},
	{"16 GPUs, all busy", 16, 16, time.Second, false},
	{"1,000 functions, 100 busy", 1000, 100, 2 * time.Second, false},
}

// run measures the loads. Each runs for ten seconds before the measurement.
func runRecord(ctx context.Context, r *report.Run) error {
	warm, length := report.Sized(r.Small, 10*time.Second, time.Second), report.Sized(r.Small, time.Minute, 2*time.Second) // an instance reports its load after two
	var parts []report.Part
	for _, l := range recordLoads {
		parts = append(parts, report.Part{Name: l.name, Measure: func(ctx context.Context) ([]report.Measurement, error) { return measureRecord(ctx, l, warm, length) }})
	}
	return r.Parts(ctx, parts...)
}

// measure measures one load.
func measureRecord(ctx context.Context, l recordLoad, warm, length time.Duration) ([]report.Measurement, error) {
	folder, err := os.MkdirTemp("", "record")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	f, err := newFleet(l, folder)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { _ = f.a.Run(ctx) }) // it runs once, and has no other error
	parts.Go(func() { f.work(ctx) })
	if err := sleep(ctx, warm); err != nil {
		return nil, err
	}
	began, bytes, cost, events := time.Now(), sizeOfFolder(folder), f.a.RecordCost(), f.sent.Load()
	if err := sleep(ctx, length); err != nil {
		return nil, err
	}
	took := time.Since(began)
	bytes, cost, events = sizeOfFolder(folder)-bytes, f.a.RecordCost()-cost, f.sent.Load()-events
	stop()
	parts.Wait()
	day := float64(24*time.Hour) / float64(took)
	megabytes, share := float64(bytes)*day/1e6, 100*float64(cost)/float64(took)
	one := func(name, what, unit string, v float64) report.Measurement {
		return report.Measurement{Name: name + ", " + l.name, What: what, Unit: unit, N: 1, Rouse: report.Summarise([]float64{v})}
	}
	a := one("bytes a day", "what the record grows by, compressed", "MB", megabytes)
	a.Note = fmt.Sprintf("%.0f events a second, %.1f bytes each; 50 MB go back %.1f h", float64(events)/took.Seconds(), float64(bytes)/float64(events), 24*50/megabytes)
	b := one("time of a core", "time that recording takes, the writing included", "%", share)
	b.Note = fmt.Sprintf("%.1f us an event", float64(cost.Microseconds())/float64(events))
	if l.gated {
		a = a.Gated(megabytes <= 50, "at most 50 MB a day")
	}
	b = b.Gated(share <= 1, "at most 1 %% of a core")
	c, err := again(folder, l)
	return []report.Measurement{a, b, c}, err
}

// again replays a record.
func again(folder string, l recordLoad) (report.Measurement, error) {
	segments, err := flight.Open(folder)
	if err != nil {
		return report.Measurement{}, err
	}
	rounds, decisions, took := 0, 0, time.Duration(0)
	for _, s := range segments {
		r, err := autoscaler.NewReplay(s)
		if err != nil {
			return report.Measurement{}, err
		}
		for ; ; rounds++ {
			began := time.Now()
			round, err := r.Next()
			took += time.Since(began)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return report.Measurement{}, err
			}
			if !reflect.DeepEqual(round.Decided, round.Recorded) {
				return report.Measurement{}, fmt.Errorf("the replay decides otherwise at %s", round.At)
			}
			decisions += len(round.Decided)
		}
	}
	m := report.Measurement{Name: "replay, " + l.name, What: "time to decide it again, for each round", Unit: "us", N: rounds,
		Rouse: report.Summarise([]float64{float64(took.Microseconds()) / float64(max(1, rounds))})}
	m.Note = fmt.Sprintf("%d decisions in %d rounds, all alike", decisions, rounds)
	return m, nil
}

func sizeOfFolder(folder string) (sum int64) {
	files, err := flight.Files(folder)
	if err != nil {
		return 0
	}
	for _, f := range files {
		sum += f.Size
	}
	return sum
}

// newFleet makes the functions of a load, with a GPU less than there are functions.
func newFleet(l recordLoad, folder string) (*fleet, error) {
	f := &fleet{load: l, instances: map[api.InstanceID]api.InstanceStatus{}, of: map[api.FunctionName]api.InstanceID{}}
	devices := []inventory.Device{{ID: api.HostMemory, Capacity: 100 * api.TiB, Total: 100 * api.TiB}}
	for k := range l.functions {
		id := api.DeviceID(fmt.Sprintf("GPU-%04d", k))
		devices = append(devices, inventory.Device{ID: id, Name: "GPU", Capacity: 80 * api.GiB, Total: 80 * api.GiB})
	}
	var err error
	f.a, err = autoscaler.New(autoscaler.Config{Devices: devices[:len(devices)-1], Record: flight.Config{Folder: folder, MostBytes: 1 << 30, Version: "bench"}},
		f, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, err
	}
	for k := range l.functions {
		name := api.NewFunctionName("default", fmt.Sprintf("model-%04d", k))
		f.names = append(f.names, name)
		f.a.PutFunction(api.Function{Name: name, Memory: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}, SleepAfter: time.Minute}.WithDefaults())
	}
	return f, nil
}

var errGone = errors.New("connection refused")

func random() float64 { return rand.Float64() }
