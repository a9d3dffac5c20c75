package autoscaler

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// TestReadingTheAccountLeavesFunctionsDirty checks that the loop looks at what has changed though
// somebody has asked for the devices in between, as metrics do.
func TestReadingTheAccountLeavesFunctionsDirty(t *testing.T) {
	a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}}},
		nil, nil, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	f := a.record("default/a")
	f.Spec, f.Undeclared = api.Function{Name: "default/a"}.WithDefaults(), false
	f.demands["door"] = demand{Demand: api.Demand{Function: "default/a", Activator: "door", Running: 1}, heard: now}
	f.sum(now)
	a.dirty.add(f.Spec.Name)
	a.account(now)
	if look, want := a.prepare(now), now.Add(a.cfg.DemandTTL); !look.Equal(want) {
		t.Errorf("it looks at the demand again at %s, want %s: it would never expire", look, want)
	}
}

// TestWaitingChangesNothing checks that a function which is told what it waits for is not dirty for it, so that what was found
// for it stands, and is told once.
func TestWaitingChangesNothing(t *testing.T) {
	a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}}},
		nil, nil, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	f := a.record("default/a")
	for range 2 {
		a.act(&decide.Action{Kind: decide.Wait, Function: f.Spec.Name, Reason: "lacks memory"}, now)
	}
	if told := f.decisions; len(a.dirty.names) > 0 || len(told) != 1 {
		t.Errorf("%v are dirty and it was told %v, want none and one decision", a.dirty.names, told)
	}
}
