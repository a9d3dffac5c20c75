package autoscaler

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestSharedIsChargedOnce checks that instances of one file on a node are charged for its memory once, even if their
// functions differ. That holds while they come, when one of them disappears, when that one was charged for all, after a
// restart, and when they disagree.
func TestSharedIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const whole, file = 3 * api.GiB, 2560 * api.MiB
		run := func(do func(report func(name, on string, shared api.Bytes), gone func(name string), free func(node string) api.Bytes)) {
			a, err := New(Config{Devices: append(nodeOf("n1"), nodeOf("n2")...)}, hanging{}, nil, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- a.Run(ctx) }()
			defer func() { cancel(); <-done }()
			for _, f := range []api.FunctionName{"default/f", "default/g"} {
				a.PutFunction(api.Function{Name: f, Memory: api.Memory{Host: whole}, MaxScale: 4, SleepAfter: time.Hour}.WithDefaults())
				a.ObserveDemand(api.Demand{Function: f, Activator: "x", Running: 20, LastRequest: time.Now(), At: time.Now()})
			}
			seq := uint64(0)
			status := func(name string) api.InstanceStatus {
				seq++
				return api.InstanceStatus{Instance: api.InstanceID(name), Function: api.FunctionName("default/" + name[:1]), State: api.Awake, Seq: seq, PID: 1, Endpoint: "http://127.0.0.1:1"}
			}
			do(func(name, on string, shared api.Bytes) {
				s := status(name)
				s.Node, s.Memory.Host = on, whole
				if shared > 0 {
					s.Shared = api.SharedMemory{File: "fd:01 77", Bytes: shared}
				}
				a.ObserveInstance(s)
				synctest.Wait()
			}, func(name string) {
				s := status(name)
				s.State = api.Gone
				a.ObserveInstance(s)
				synctest.Wait()
			}, func(node string) api.Bytes {
				for _, d := range a.Devices() {
					if d.Node == node && d.ID == api.DeviceID(node+"/host") {
						return d.Awake
					}
				}
				t.Fatalf("no host of %s", node)
				return 0
			})
		}
		check := func(what string, got, want api.Bytes) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s is charged, want %s", what, got, want)
			}
		}
		run(func(report func(string, string, api.Bytes), gone func(string), used func(string) api.Bytes) {
			report("f1", "n1", 0)
			report("g1", "n1", 0)
			check("two that have not said what they share", used("n1"), 2*whole)
			report("f1", "n1", file)
			report("g1", "n1", file)
			check("two", used("n1"), 2*whole-file)
			report("f2", "n1", file)
			report("g2", "n1", file)
			check("four", used("n1"), 4*whole-3*file)
			report("f3", "n2", file)
			check("another node's", used("n2"), whole)
			check("beside another node's", used("n1"), 4*whole-3*file)
			gone("f1") // the first name: it bears all
			check("three", used("n1"), 3*whole-2*file)
			report("g2", "n1", file/2)
			check("one that has less of it", used("n1"), 3*whole-file-file/2)
			report("g2", "n1", 0)
			check("one that has none of it any more", used("n1"), 3*whole-file)
			gone("f2")
			check("one and one without", used("n1"), 2*whole)
			gone("g1")
			gone("g2")
			check("none", used("n1"), 0)
		})
		run(func(report func(string, string, api.Bytes), _ func(string), used func(string) api.Bytes) { // after a restart
			for _, name := range []string{"g2", "f2", "g1", "f1"} {
				report(name, "n1", file)
			}
			check("four after a restart", used("n1"), 4*whole-3*file)
		})
	})
}

// TestAStartBesideTheFile checks a third instance of a function after two were seen to share one file in memory. It
// needs only its own memory, `rouse why` says so, and the memory in use never exceeds the machine's.
func TestAStartBesideTheFile(t *testing.T) {
	inWorld(t, 6656*api.MiB, func(w *fleet) {
		f := w.add("f", 3*api.GiB, func(f *fakeFunction) {
			f.shared, f.asleep = 2*api.GiB, 256*api.MiB
			f.spec.MaxScale, f.spec.Concurrency, f.spec.SleepAfter = 3, 1, time.Hour
		})
		w.request(f, 6, time.Minute)
		pass(5 * time.Minute)
		told := 0
		for _, d := range w.a.Why(f.spec.Name) {
			if d.Action == "start" && strings.Contains(d.Reason, "needs 1 GiB of host, beside 2 GiB that are in memory there") {
				told++
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.instances) != 3 || told != 1 || w.peak != 5*api.GiB {
			t.Errorf("%d instances, %s in use at most, %d starts beside the file; want 3, 5 GiB and 1\n%s", len(w.instances), w.peak, told, strings.Join(w.calls, "\n"))
		}
	})
}
