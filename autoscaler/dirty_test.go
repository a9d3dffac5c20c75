package autoscaler

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
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
	f.Spec, f.declared = api.Function{Name: "default/a"}.WithDefaults(), true
	f.demands["door"] = demand{Demand: api.Demand{Function: "default/a", Activator: "door", Running: 1}, heard: now}
	f.sum(now)
	a.dirty.add(f.Spec.Name)
	a.account(now)
	if look, want := a.prepare(now), now.Add(a.cfg.DemandTTL); !look.Equal(want) {
		t.Errorf("it looks at the demand again at %s, want %s: it would never expire", look, want)
	}
}
