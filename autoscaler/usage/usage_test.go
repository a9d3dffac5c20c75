package usage

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func gpus(n int) (list []inventory.Device) {
	list = append(list, inventory.Device{ID: api.HostMemory, Capacity: api.GiB})
	for k := range n {
		list = append(list, inventory.Device{ID: api.DeviceID(fmt.Sprint("GPU-", k)), Capacity: 10 * api.GiB})
	}
	return list
}

// TestSums checks that the time that functions held and the idle time sum to the GPUs' time, whatever happens.
func TestSums(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, now, want := New(start, nil), start, 0.0
		there := 0
		used := map[string]api.Use{}
		for range 400 {
			took := time.Duration(r.Int64N(int64(50 * time.Second)))
			if r.IntN(40) == 0 {
				took *= 100
			}
			now = now.Add(took)
			want += took.Seconds() * float64(there)
			id := api.InstanceID(fmt.Sprint("i", r.IntN(9)))
			f := api.FunctionName("default/f" + string(id[1:]))
			switch r.IntN(10) {
			case 0:
				there = r.IntN(5)
				m.SetDevices(now, gpus(there))
			case 1:
				m.Drop(now, id)
			case 2, 3, 4, 5:
				h := Holder{Instance: id, Function: f, Asleep: r.IntN(2) == 0, Bytes: api.Bytes(r.Int64N(int64(8 * api.GiB)))}
				for k := range r.IntN(3) {
					h.Devices = append(h.Devices, api.DeviceID(fmt.Sprint("GPU-", (k+r.IntN(2))%5)))
				}
				m.Set(now, h)
			default:
				u := api.Use{Begun: start, Tenant: fmt.Sprint("t", r.IntN(4))}
				key := string(id) + u.Tenant
				u.Requests, u.Input, u.GPUSeconds = used[key].Requests+1, used[key].Input+5, used[key].GPUSeconds+20*r.Float64()
				used[key] = u
				m.Used(now, api.Usage{Function: f, Activator: "a" + u.Tenant, Uses: []api.Use{u}})
			}
			if got := seconds(m.Report(now, admin.UsageQuery{}).Rows); math.Abs(got-want) > want/1000 {
				t.Fatalf("seed %d: the rows have %g GPU-seconds, want %g", seed, got, want)
			}
		}
	}
}

// TestSumsBetween checks that for any period, held and idle time sum to the GPUs' time, and that two adjoining periods
// sum to the whole.
func TestSumsBetween(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, now := New(start, nil), start
		type change struct {
			at time.Time
			n  int
		}
		gpu := []change{{start, 0}}
		held := func(from, to time.Time) (sum float64) {
			for k, c := range gpu {
				end := to
				if k+1 < len(gpu) && gpu[k+1].at.Before(end) {
					end = gpu[k+1].at
				}
				if begin := c.at; end.After(from) {
					if begin.Before(from) {
						begin = from
					}
					sum += max(0, end.Sub(begin).Seconds()) * float64(c.n)
				}
			}
			return sum
		}
		requests := int64(0)
		for range 400 {
			now = now.Add(time.Duration(r.Int64N(int64(20 * time.Minute))))
			id := api.InstanceID(fmt.Sprint("i", r.IntN(3)))
			switch r.IntN(4) {
			case 0:
				gpu = append(gpu, change{now, r.IntN(3)})
				m.SetDevices(now, gpus(gpu[len(gpu)-1].n))
			case 1:
				m.Set(now, Holder{Instance: id, Function: "default/m", Asleep: r.IntN(2) == 0, Devices: []api.DeviceID{"GPU-0"}, Bytes: api.GiB})
			default:
				requests++
				m.Used(now, api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{{Begun: start, Tenant: "a", Key: "k", Requests: requests, GPUSeconds: float64(requests)}}})
			}
			from := start.Add(time.Duration(r.Int64N(int64(now.Sub(start)) + 1)))
			to := from.Add(time.Duration(1 + r.Int64N(int64(now.Sub(from))+1)))
			u := m.Report(now, admin.UsageQuery{From: from, To: to, Keys: true})
			if u.Since.After(from) || u.Until.Before(to) && u.Until.Before(now) {
				t.Fatalf("seed %d: asked for %s to %s, got %s to %s", seed, from, to, u.Since, u.Until)
			}
			if want, got := held(u.Since, u.Until), seconds(u.Rows); math.Abs(got-want) > want/1000+1e-6 {
				t.Fatalf("seed %d: %s to %s has %g GPU-seconds, want %g", seed, u.Since, u.Until, got, want)
			}
			all := int64(0)
			for _, q := range []admin.UsageQuery{{To: u.Since}, {From: u.Since, To: u.Until}, {From: u.Until}} {
				if q.From.Equal(now) || q.To.Equal(start) {
					continue // there is nothing
				}
				for _, row := range m.Report(now, q).Rows {
					all += row.Requests
				}
			}
			if all != requests {
				t.Fatalf("seed %d: %d requests before, in and after %s to %s, want %d", seed, all, u.Since, u.Until, requests)
			}
		}
	}
}

// TestKeys: a query splits what a tenant used by its keys, or does not.
func TestKeys(t *testing.T) {
	m := New(start, nil)
	m.Used(start, api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{
		{Begun: start, Tenant: "a", Key: "x", Requests: 1, Input: 10, Cached: 8}, {Begun: start, Tenant: "a", Key: "y", Requests: 2, Input: 20}}})
	for _, keys := range []bool{false, true} {
		got := ""
		for _, r := range m.Report(start, admin.UsageQuery{Keys: keys}).Rows {
			got += fmt.Sprint(r.Tenant, r.Key, r.Requests, r.Input, r.Cached, " ")
		}
		if want := map[bool]string{false: "a3 30 8 ", true: "ax1 10 8 ay2 20 0 "}[keys]; got != want {
			t.Errorf("keys %t: %s, want %s", keys, got, want)
		}
	}
}

// TestPastIsBounded checks that weeks of minutes with many rows fit: the latest ones are kept in minutes, and older
// ones in hours.
func TestPastIsBounded(t *testing.T) {
	var names [200]string
	for k := range names {
		names[k] = fmt.Sprint(k)
	}
	var h history
	const minutes, tenants = 5 * 24 * 60, 90
	for k := range minutes {
		rows := make(table, tenants)
		for n := range tenants {
			rows[rowKey{tenant: names[(k/60+n)%len(names)]}] = &admin.UsageRow{Tenant: names[(k/60+n)%len(names)], Requests: 1}
		}
		at := time.Duration(k) * time.Minute
		h.keep(period{from: at, to: at + time.Minute, rows: rows})
		if k%200 == 199 {
			have := 0
			for n, p := range h.periods {
				have += len(p.rows)
				if n > 0 && h.periods[n-1].to != p.from {
					t.Fatal("a period does not begin where the one before ends")
				}
			}
			if have != h.rows || have > mostPast {
				t.Fatalf("after %d minutes %d rows in %d periods, counted as %d", k, have, len(h.periods), h.rows)
			}
		}
	}
	last, first := h.periods[len(h.periods)-2], h.periods[0]
	if last.to-last.from != time.Minute || first.to-first.from != time.Hour || first.from != 0 {
		t.Errorf("the last period has %s, the first %s from %s on", last.to-last.from, first.to-first.from, first.from)
	}
	for k := range 60 { // no room even for hours: the oldest go
		rows := make(table, mostPast/40)
		for n := range mostPast / 40 {
			rows[rowKey{tenant: "many", function: api.FunctionName(fmt.Sprint(k, n))}] = &admin.UsageRow{}
		}
		h.keep(period{from: h.end(), to: h.end() + time.Hour, rows: rows})
	}
	if h.rows > mostPast || h.periods[0].from == 0 || len(h.periods) < 30 {
		t.Errorf("%d rows in %d periods from %s on", h.rows, len(h.periods), h.periods[0].from)
	}
}

func seconds(rows []admin.UsageRow) (sum float64) {
	for _, r := range rows {
		sum += r.GPUSeconds
	}
	return sum
}

func found(t *testing.T, rows []admin.UsageRow, f api.FunctionName, tenant, state string, want float64) {
	t.Helper()
	got := 0.0
	for _, r := range rows {
		if r.Function == f && r.Tenant == tenant && r.State == state {
			got = r.GPUSeconds
		}
	}
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s of %q, %s: %g GPU-seconds, want %g", f, tenant, state, got, want)
	}
}

// TestShares checks that tenants have what activators report, and that what no request used is the function's, a sleeper's
// time its own, and the rest idle. What is reported late is taken from the window before.
func TestShares(t *testing.T) {
	m := New(start, nil)
	m.SetDevices(start, gpus(1))
	awake := Holder{Instance: "m-1", Function: "default/m", Devices: []api.DeviceID{"GPU-0"}, Bytes: 5 * api.GiB}
	if got := m.Share(awake); got != 0.5 {
		t.Errorf("it holds %g GPUs, want a half", got)
	}
	m.Set(start, awake)
	m.Set(start, Holder{Instance: "n-1", Function: "default/n", Asleep: true, Devices: []api.DeviceID{"GPU-0"}, Bytes: api.GiB})
	use := func(tenant string, requests int64, gpuSeconds float64) api.Use {
		return api.Use{Begun: start, Tenant: tenant, Requests: requests, GPUSeconds: gpuSeconds}
	}
	say := func(after time.Duration, activator string, uses ...api.Use) {
		m.Used(start.Add(after), api.Usage{Function: "default/m", Activator: activator, Uses: uses})
	}
	say(10*time.Second, "one", use("a", 1, 4))
	say(20*time.Second, "two", use("b", 0, 6))
	say(21*time.Second, "two", use("b", 0, 6)) // again
	say(61*time.Second, "one", use("a", 2, 5))
	rows := m.Report(start.Add(time.Minute+time.Second), admin.UsageQuery{}).Rows
	found(t, rows, "default/m", "a", "awake", 4.5) // of the present window so far
	found(t, rows, "default/m", "b", "awake", 6)
	found(t, rows, "default/m", "", "awake", 20)
	found(t, rows, "default/n", "", "asleep", 6.1)
	found(t, rows, "", "", "idle", 24.4)
	say(119*time.Second, "one", use("a", 3, 5+39)) // 40 s in a window in which 30 were held
	say(119*time.Second, "two", use("b", 1, 6))
	rows = m.Settled(start.Add(2 * time.Minute)) // the first window
	found(t, rows, "default/m", "a", "awake", 14)
	found(t, rows, "default/m", "b", "awake", 6)
	found(t, rows, "default/m", "", "awake", 10)
	m.Settled(start.Add(11 * time.Minute))
	rows = m.Settled(start.Add(12 * time.Minute)) // then nobody used it
	found(t, rows, "default/m", "a", "awake", 44)
	found(t, rows, "default/m", "b", "awake", 6)
	found(t, rows, "default/m", "", "awake", 10+9*30)
	if got := seconds(rows); math.Abs(got-660) > 1e-6 {
		t.Errorf("%g GPU-seconds in all, want 660", got)
	}
}

// TestNotTwice checks that two activators that take an instance to be their own don't make more of it than it held.
func TestNotTwice(t *testing.T) {
	m := New(start, nil)
	m.SetDevices(start, gpus(1))
	m.Set(start, Holder{Instance: "m-1", Function: "default/m", Devices: []api.DeviceID{"GPU-0"}})
	for _, tenant := range []string{"a", "b"} {
		m.Used(start.Add(59*time.Second), api.Usage{Function: "default/m", Activator: tenant, Uses: []api.Use{{Begun: start, Tenant: tenant, Requests: 1, GPUSeconds: 59}}})
	}
	rows := m.Settled(start.Add(2 * time.Minute))
	found(t, rows, "default/m", "a", "awake", 30)
	found(t, rows, "default/m", "b", "awake", 30)
	found(t, rows, "default/m", "", "awake", 0)
}

// TestSaved checks that a meter that goes on from what another saved, at any time, has all of its usage, and counts no
// time in between.
func TestSaved(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, now, want := New(start, nil), start, 0.0
		requests, used := int64(0), 0.0
		begun := start
		hold := func() {
			m.SetDevices(now, gpus(2))
			m.Set(now, Holder{Instance: "i0", Function: "default/m", Devices: []api.DeviceID{"GPU-0"}, Bytes: 5 * api.GiB})
		}
		hold()
		for range 60 {
			took := time.Duration(r.Int64N(int64(20 * time.Minute)))
			now, want = now.Add(took), want+2*took.Seconds()
			used += took.Seconds() / 4
			requests++
			m.Used(now, api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{{Begun: begun, Tenant: "a", Key: "k", Requests: requests, GPUSeconds: used}}})
			if r.IntN(4) > 0 {
				continue
			}
			saved := m.Save(now)
			if saved == nil || m.Save(now) != nil {
				t.Fatal("want something to save, once")
			}
			raw, err := json.Marshal(saved)
			if err != nil {
				t.Fatal(err)
			}
			before := m.Report(now, admin.UsageQuery{Keys: true})
			var back Saved
			if err := json.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Duration(r.Int64N(int64(time.Hour))) - 10*time.Minute) // the clock may be set back
			m = New(now, &back)
			after := m.Report(now, admin.UsageQuery{Keys: true})
			if diff := cmp.Diff(before.Rows, after.Rows, cmpopts.EquateApprox(1e-9, 1e-6)); diff != "" {
				t.Fatalf("seed %d (-before +after):\n%s", seed, diff)
			}
			past := m.Report(now, admin.UsageQuery{From: after.Since, To: now, Keys: true})
			if diff := cmp.Diff(before.Rows, past.Rows, cmpopts.EquateApprox(1e-9, 1e-6)); diff != "" {
				t.Fatalf("seed %d: by periods (-before +after):\n%s", seed, diff)
			}
			begun = now
			requests, used = 0, 0
			hold()
		}
		if got := seconds(m.Report(now, admin.UsageQuery{}).Rows); math.Abs(got-want) > want/1000 {
			t.Errorf("seed %d: %g GPU-seconds, want %g", seed, got, want)
		}
	}
}

// TestSavedIsBounded checks that what many tenants and months leave fits into a ConfigMap.
func TestSavedIsBounded(t *testing.T) {
	m, now := New(start, nil), start
	for k := range 500 {
		now = now.Add(time.Hour)
		var uses []api.Use
		for n := range 300 {
			uses = append(uses, api.Use{Begun: start, Tenant: fmt.Sprint("tenant-", n), Key: fmt.Sprint("key-", n), Requests: int64(k + 1), Input: 1000, GPUSeconds: float64(k)})
		}
		m.Used(now, api.Usage{Function: api.FunctionName(fmt.Sprint("default/f", k%20)), Activator: "one", Uses: uses})
	}
	raw, err := json.Marshal(m.Save(now))
	if err != nil || len(raw) > 900<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

// TestSavedIsBoundedWithinHours: so it does if most of it is of two hours, and has long names.
func TestSavedIsBoundedWithinHours(t *testing.T) {
	m, now := New(start, nil), start
	for k := range 3 {
		now = now.Add(time.Hour)
		for f := range 10 {
			u := api.Usage{Function: api.FunctionName(fmt.Sprint("a-team/a-model-of-some-size-", f)), Activator: "one"}
			for n := range 180 {
				u.Uses = append(u.Uses, api.Use{Begun: start, Tenant: fmt.Sprint("tenant-number-", n), Key: fmt.Sprint("key-of-tenant-", n), Requests: int64(k + 1),
					Input: api.Tokens(k * 1234567), Cached: 100, Output: api.Tokens(k * 12345), GPUSeconds: float64(k) * 1.2345678})
			}
			m.Used(now, u)
		}
	}
	raw, err := json.Marshal(m.Save(now))
	if err != nil || len(raw) > 620<<10 { // a mebibyte without the most that is learned
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

// TestBeginsAnew checks that an activator that restarts counts from nothing, and that counts from before the meter
// began are ignored.
func TestBeginsAnew(t *testing.T) {
	m := New(start, nil)
	say := func(begun time.Time, requests int64) int64 {
		m.Used(start.Add(time.Hour), api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{{Begun: begun, Tenant: "a", Requests: requests, Input: 10 * api.Tokens(requests)}}})
		all := int64(0)
		for _, r := range m.Report(start.Add(time.Hour), admin.UsageQuery{}).Rows {
			all += r.Requests
		}
		return all
	}
	old, anew := start.Add(-time.Hour), start.Add(time.Minute)
	for k, c := range []struct {
		begun          time.Time
		requests, want int64
	}{{old, 1000, 0}, {old, 1003, 3}, {anew, 2, 5}, {old, 1004, 5}, {anew, 2, 5}, {anew, 4, 7}} {
		if got := say(c.begun, c.requests); got != c.want {
			t.Errorf("step %d: %d requests counted, want %d", k, got, c.want)
		}
	}
}

// TestManySources: activators and functions come and go, and new ones are counted all the same.
func TestManySources(t *testing.T) {
	m, now := New(start, nil), start
	use := func(k int) {
		m.Used(now, api.Usage{Function: "default/m", Activator: fmt.Sprint("pod-", k), Uses: []api.Use{{Begun: now, Requests: 1}}})
	}
	for k := range mostSources + 1 {
		use(k)
	}
	now = now.Add(2 * silent)
	use(mostSources + 2)
	got := int64(0)
	for _, r := range m.Report(now, admin.UsageQuery{}).Rows {
		got += r.Requests
	}
	if want := int64(mostSources + 1); got != want || len(m.sources) != 1 {
		t.Errorf("%d requests are counted, want %d; %d sources are kept", got, want, len(m.sources))
	}
}

// TestBounds: names that clients bring don't fill memory.
func TestBounds(t *testing.T) {
	m := New(start, nil)
	for k := range 1000 {
		m.Used(start, api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{{Begun: start, Tenant: fmt.Sprint(k), Requests: 1}}})
	}
	if n := len(m.Report(start, admin.UsageQuery{}).Rows); n > mostTenants+3 {
		t.Errorf("%d rows for 1000 tenants", n)
	}
}
