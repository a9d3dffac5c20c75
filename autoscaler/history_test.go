package autoscaler_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

var began = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// reader combines the answers as a page does: all entries first, then the newer ones.
type reader struct {
	seq       uint64
	held      map[api.InstanceID]admin.Held
	decisions int
}

func (r *reader) read(h admin.History) {
	if h.Whole {
		r.held, r.decisions = map[api.InstanceID]admin.Held{}, 0
	}
	for _, c := range slices.Concat(h.Held, h.Changes) {
		if c.State == api.Gone {
			delete(r.held, c.Instance)
		} else {
			r.held[c.Instance] = c
		}
	}
	r.seq = h.Seq
	r.decisions += len(h.Decisions)
}

// states returns what a holder holds, without the times of changes.
func states(held map[api.InstanceID]admin.Held) []string {
	var list []string
	for h := range maps.Values(held) {
		list = append(list, fmt.Sprint(h.Instance, h.State, h.PerDevice, h.Devices))
	}
	slices.Sort(list)
	return list
}

// TestReadersAgree checks that all readers see the same, whether they read often, seldom or for the first time and
// whatever was dropped in between, and that nothing is kept beyond the limits.
func TestReadersAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r, now, want := autoscaler.NewHistory(began), began, map[api.InstanceID]admin.Held{}
	var often, seldom reader
	for k := range 5 * autoscaler.MostChanges {
		now = now.Add(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		h := admin.Held{At: now, Instance: api.InstanceID(fmt.Sprint("i-", rnd.IntN(50))), Function: "default/f", Devices: []api.DeviceID{"gpu-0"}, State: api.Awake, PerDevice: api.Bytes(1+rnd.IntN(40)) * api.GiB}
		switch rnd.IntN(5) {
		case 0:
			r.Drop(now, h.Instance)
			delete(want, h.Instance)
		case 1:
			r.Decided(api.Decision{At: now, Function: h.Function, Action: "wake", Reason: strings.Repeat("x", 5000)})
		default:
			if old := want[h.Instance]; old.PerDevice-h.PerDevice > old.PerDevice/32 || h.PerDevice-old.PerDevice > h.PerDevice/32 {
				want[h.Instance] = h
			}
			r.Set(h)
		}
		if k%100 == 0 {
			often.read(r.After(often.seq))
		}
		if k%20_000 == 0 {
			seldom.read(r.After(seldom.seq))
		}
	}
	var first reader
	whole := r.After(0)
	first.read(whole)
	for _, c := range []*reader{&often, &seldom} {
		c.read(r.After(c.seq))
		if diff := cmp.Diff(states(first.held), states(c.held)); diff != "" {
			t.Errorf("readers differ: %s", diff)
		}
	}
	if diff := cmp.Diff(states(want), states(first.held)); diff != "" {
		t.Errorf("beginning and changes are not what is held: %s", diff)
	}
	if len(whole.Changes) > autoscaler.MostChanges || len(whole.Changes) < autoscaler.MostChanges/2 || len(whole.Decisions) > autoscaler.MostDecisions || !whole.Whole {
		t.Errorf("%d changes, %d decisions, whole %v", len(whole.Changes), len(whole.Decisions), whole.Whole)
	}
	if n := len(whole.Decisions[0].Reason); n > 1100 {
		t.Errorf("a reason of %d bytes is kept", n)
	}
	if more := r.After(whole.Seq); more.Whole || len(more.Changes)+len(more.Decisions)+len(more.Held) > 0 {
		t.Errorf("nothing is newer: %+v", more)
	}
	if other := autoscaler.NewHistory(began.Add(time.Hour)).After(whole.Seq); !other.Whole {
		t.Error("a reader of another process is not told everything")
	}
}

// TestADay checks that entries older than a day are only in the beginning.
func TestADay(t *testing.T) {
	r := autoscaler.NewHistory(began)
	for k := range 100 {
		r.Set(admin.Held{At: began.Add(time.Duration(k) * time.Hour), Instance: "i", State: api.Awake, Host: api.Bytes(1) << (k % 30)})
		r.Decided(api.Decision{At: began.Add(time.Duration(k) * time.Hour)})
	}
	h := r.After(0)
	if len(h.Changes) != 25 || len(h.Decisions) != 25 || len(h.Held) != 1 || h.Since != began.Add(74*time.Hour) {
		t.Errorf("%d changes, %d decisions, held %v since %s", len(h.Changes), len(h.Decisions), h.Held, h.Since)
	}
}

// TestOtherPrograms checks that other programs are holders too, for as long as their device exists.
func TestOtherPrograms(t *testing.T) {
	r := autoscaler.NewHistory(began)
	devices := func(others api.Bytes) []inventory.Device {
		return []inventory.Device{{ID: api.HostMemory, Others: api.GiB}, {ID: "gpu-0", Others: others}}
	}
	r.SetDevices(began, devices(0))
	r.SetDevices(began, devices(8*api.GiB))
	r.SetDevices(began, devices(8*api.GiB+api.MiB)) // a little, as all the time
	r.SetDevices(began, nil)
	got := r.After(0).Changes
	if len(got) != 2 || got[0].PerDevice != 8*api.GiB || got[0].Function != "" || got[1].State != api.Gone {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkSame(b *testing.B) {
	r := autoscaler.NewHistory(began)
	h := admin.Held{At: began, Instance: "i", Devices: []api.DeviceID{"gpu-0"}, State: api.Awake}
	for b.Loop() {
		r.Set(h)
	}
}
