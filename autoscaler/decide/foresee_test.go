package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

var dawn = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// job is a function that was asked for every ten minutes since dawn, visits times, and sleeps; it takes 2 s to wake and 40 s to load.
func job(name string, visits int) Function {
	f := Function{Need: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}, Certain: true}
	f.Spec = api.Function{Name: api.NewFunctionName("", name), SleepAfter: time.Minute, UnloadAfter: 15 * time.Minute, Memory: f.Need}.WithDefaults()
	f.Past = inventory.Experience{Load: 40 * time.Second, Wake: [4]time.Duration{0, 2 * time.Second, 4 * time.Second}, Sleep: time.Second, Starts: 1,
		Asleep: [4]api.Memory{{}, {Host: api.GiB}, {Host: api.GiB}}}
	for k := range visits {
		f.Arrived(dawn.Add(time.Duration(k) * 10 * time.Minute))
		f.LastRequest = dawn.Add(time.Duration(k)*10*time.Minute + time.Second)
	}
	return f
}

// last is the time of the last of so many visits.
func lastOf(visits int) time.Time { return dawn.Add(time.Duration(visits-1) * 10 * time.Minute) }

// one is an instance of f.
func one(f *Function, id api.InstanceID, s api.State, since time.Time) Instance {
	i := Instance{Since: since, From: inventory.Stopped}
	i.Status = api.InstanceStatus{Instance: id, Function: f.Spec.Name, State: s, Devices: []api.DeviceID{"GPU-0"}, Memory: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}}
	if s == api.Asleep {
		i.Status.Level, i.From, i.Status.Memory = api.Level1, api.Level1, api.Memory{Host: api.GiB, Devices: 1}
	}
	return i
}

func machine() []inventory.Device {
	return []inventory.Device{
		{ID: api.HostMemory, Capacity: 64 * api.GiB, Total: 64 * api.GiB},
		{ID: "GPU-0", Capacity: 80 * api.GiB, Total: 80 * api.GiB},
	}
}

// planned returns the actions of a plan at now, without grants, as strings.
func planned(now time.Time, fs []Function, is []Instance) (actions []Action, next time.Time) {
	s := records{Devices: machine(), Functions: fs, Instances: is}
	s.Sort()
	all, next := s.plan(now)
	for _, a := range all {
		if a.Kind != Grant {
			actions = append(actions, a)
		}
	}
	return actions, next
}

func TestWokenJustBefore(t *testing.T) {
	f := job("f", 8)
	w, known := f.window(lastOf(8).Add(time.Minute))
	if !known {
		t.Fatal("after eight visits at equal distances nothing is foreseen")
	}
	begin := w.From.Add(-f.lead(api.Level1))
	sleeper := one(&f, "f-1", api.Asleep, lastOf(8).Add(time.Minute))
	actions, next := planned(begin.Add(-time.Millisecond), []Function{f}, []Instance{sleeper})
	if len(actions) != 0 || next.After(begin) {
		t.Errorf("before its time: %v, the next plan at %s; want nothing, and a plan at %s", actions, next, begin)
	}
	actions, _ = planned(begin, []Function{f}, []Instance{sleeper})
	if len(actions) != 1 || actions[0].Kind != Wake || !actions[0].Ahead || !strings.Contains(actions[0].Reason, "a request is foreseen at 09:20:00") ||
		!strings.Contains(actions[0].Reason, "10m0s, 7 times in a row") || !strings.Contains(actions[0].Reason, "forecasts were right") {
		t.Errorf("got %v, want a wake that names the forecast", actions)
	}
	awake := one(&f, "f-1", api.Awake, begin.Add(2*time.Second))
	awake.Ahead, awake.From = true, api.Level1
	if actions, next = planned(w.Until, []Function{f}, []Instance{awake}); len(actions) != 0 || next.After(w.Until.Add(time.Second)) {
		t.Errorf("within the window: %v, the next plan at %s, want that it stays until %s", actions, next, w.Until)
	}
	actions, _ = planned(w.Until.Add(time.Millisecond), []Function{f}, []Instance{awake})
	if len(actions) != 1 || actions[0].Kind != Sleep || !strings.Contains(actions[0].Reason, "it came up for a predicted request that has not arrived") {
		t.Errorf("after the window: %v, want that it goes to sleep at once", actions)
	}
}

func TestNotWokenAhead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		visits int
		change func(f *Function)
	}{
		{name: "three requests", visits: 3},
		{name: "switched off", visits: 8, change: func(f *Function) { f.Spec.NoPrewake = true }},
		{name: "put to sleep by hand", visits: 8, change: func(f *Function) { f.Order = OrderSleep }},
		{name: "scaled from outside", visits: 8, change: func(f *Function) { f.Scale.Until = lastOf(9).Add(time.Hour) }},
		{name: "it failed", visits: 8, change: func(f *Function) { f.Failures = 1 }},
		{name: "its last forecasts were wrong", visits: 8, change: func(f *Function) {
			for _, t := range []time.Duration{13, 31, 57, 91, 140, 200} {
				f.LastRequest = lastOf(8).Add((t - 9) * time.Minute)
				f.Arrived(lastOf(8).Add(t * time.Minute))
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := job("f", tc.visits)
			if tc.change != nil {
				tc.change(&f)
			}
			w, _ := f.Rhythm.Made()
			sleeper := one(&f, "f-1", api.Asleep, w.From.Add(-time.Minute))
			for _, at := range []time.Time{w.From.Add(-f.lead(api.Level1)), w.From, w.Until} {
				if actions, _ := planned(at, []Function{f}, []Instance{sleeper}); len(actions) != 0 {
					t.Errorf("got %v, want nothing", actions)
				}
			}
		})
	}
}

// TestVictimsOfForecasts: what is foreseen takes memory of an idle instance that is seldom wanted, of none that works, of none that is wanted as soon,
// and gives way to a request that is there.
func TestVictimsOfForecasts(t *testing.T) {
	f := job("f", 8)
	w, _ := f.Rhythm.Made()
	now := w.From.Add(-f.lead(api.Level1))
	sleeper := one(&f, "f-1", api.Asleep, lastOf(8).Add(time.Minute))
	other := func(gap time.Duration) Function {
		g := job("g", 0)
		g.Rhythm = nil
		for k := range 4 {
			g.Past = g.Past.Arrived(gap, dawn.Add(time.Duration(k)*gap))
		}
		g.LastRequest = now.Add(-30 * time.Second)
		return g
	}
	for _, tc := range []struct {
		name string
		g    Function
		want string
	}{
		{"seldom wanted", other(time.Hour), "sleep g-1 at level 1: idle for 30s; makes room for default/f"},
		{"often wanted", other(time.Second), ""},
		{"nothing known", func() Function { g := other(time.Hour); g.Past.Arrivals = inventory.Arrivals{}; return g }(), ""},
		{"busy", func() Function { g := other(time.Hour); g.Running = 1; return g }(), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			awake := one(&tc.g, "g-1", api.Awake, now.Add(-30*time.Second))
			actions, _ := planned(now, []Function{f, tc.g}, []Instance{sleeper, awake})
			got := ""
			for _, a := range actions {
				got += a.String()
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("a request comes for another", func(t *testing.T) {
		g := other(time.Hour)
		g.Waiting, g.WaitingSince = 1, now
		ahead := one(&f, "f-1", api.Awake, now.Add(-10*time.Second))
		ahead.Ahead, ahead.From = true, api.Level1
		actions, _ := planned(w.From, []Function{f, g}, []Instance{ahead, one(&g, "g-1", api.Asleep, dawn)})
		if len(actions) == 0 || actions[0].Kind != Sleep || actions[0].Instance != "f-1" {
			t.Errorf("got %v, want that what rose ahead makes room for a request that is there", actions)
		}
	})
}

// TestGrantsBeforeForecasts: for what is foreseen, grants are taken back only as early as it would book free memory, and it keeps its own, so that
// they don't change hands to and fro.
func TestGrantsBeforeForecasts(t *testing.T) {
	f := job("f", 8)
	w, _ := f.Rhythm.Made()
	begin := w.From.Add(-f.lead(api.Level1))
	g := job("g", 0)
	g.LastRequest = lastOf(8).Add(2 * time.Minute)
	for k := range 4 {
		g.Past = g.Past.Arrived(time.Minute, dawn.Add(time.Duration(k)*time.Minute))
	}
	granted := func(i Instance) Instance {
		i.Grant = api.Grant{Instance: i.Status.Instance, Function: i.Status.Function, Expires: w.Until.Add(time.Hour)}
		return i
	}
	mine, other := one(&f, "f-1", api.Asleep, lastOf(8).Add(time.Minute)), one(&g, "g-1", api.Asleep, lastOf(8).Add(2*time.Minute))
	for _, tc := range []struct {
		name   string
		before time.Duration
		is     []Instance
		want   string
	}{
		{"another's grant, long before", roomLead + time.Second, []Instance{mine, granted(other)}, ""},
		{"another's grant, shortly before", roomLead, []Instance{mine, granted(other)}, "revoke g-1"},
		{"its own grant, long before", roomLead + time.Second, []Instance{granted(mine), other}, "revoke f-1"},
		{"its own grant, shortly before", roomLead, []Instance{granted(mine), other}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			actions, _ := planned(begin.Add(-tc.before), []Function{f, g}, tc.is)
			got := ""
			for _, a := range actions {
				got += a.String()
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStartedForTheHour: where there is no instance, and usually a request at that hour, one is started in free memory, put to sleep at once, and not unloaded.
func TestStartedForTheHour(t *testing.T) {
	f := job("f", 0)
	nine := dawn.Add(time.Hour)
	for d := range 5 {
		for k := range 7 { // at irregular times
			at := nine.AddDate(0, 0, d).Add(time.Duration(k*k*11+d*7) * 17 * time.Second)
			f.Arrived(at)
			f.LastRequest = at.Add(time.Second)
		}
	}
	morning := nine.AddDate(0, 0, 7)
	actions, next := planned(morning.Add(-2*time.Hour), []Function{f}, nil)
	if len(actions) != 0 || next.IsZero() || next.After(morning) {
		t.Fatalf("two hours before: %v, the next plan at %s; want nothing, and a plan before %s", actions, next, morning)
	}
	now := next
	actions, _ = planned(now, []Function{f}, nil)
	if len(actions) != 1 || actions[0].Kind != Start || !actions[0].Ahead || !strings.Contains(actions[0].Reason, "on most of the last days") {
		t.Fatalf("at %s: %v, want a start that names the hour", now, actions)
	}
	risen := one(&f, "f-1", api.Awake, now.Add(40*time.Second))
	risen.Ahead = true
	if actions, _ = planned(risen.Since, []Function{f}, []Instance{risen}); len(actions) != 1 || actions[0].Kind != Sleep {
		t.Errorf("awake: %v, want that it goes to sleep at once", actions)
	}
	sleeper := one(&f, "f-1", api.Asleep, now.Add(time.Minute))
	if actions, _ = planned(now.Add(20*time.Minute), []Function{f}, []Instance{sleeper}); len(actions) != 0 {
		t.Errorf("asleep for longer than unload-after in its hour: %v, want that it stays", actions)
	}
	if actions, _ = planned(now.Add(12*time.Hour), []Function{f}, []Instance{sleeper}); len(actions) != 1 || actions[0].Kind != Stop {
		t.Errorf("in the evening: %v, want that it is unloaded", actions)
	}
	full := job("g", 0)
	full.LastRequest = now
	hog := one(&full, "g-1", api.Awake, now.Add(-10*time.Second))
	if actions, _ = planned(now, []Function{f, full}, []Instance{hog}); len(actions) != 0 {
		t.Errorf("without free memory: %v, want nothing", actions)
	}
}

// TestForecastsAfterAClockJump: a clock that jumps makes nobody rise ahead for ever.
func TestForecastsAfterAClockJump(t *testing.T) {
	for _, jump := range []time.Duration{-24 * 365 * time.Hour, -5 * time.Minute, 5 * time.Minute, 24 * 365 * time.Hour} {
		f := job("f", 8)
		now := lastOf(8).Add(time.Minute + jump)
		sleeper := one(&f, "f-1", api.Asleep, now)
		actions, _ := planned(now, []Function{f}, []Instance{sleeper})
		f.Arrived(now)
		f.LastRequest = now
		if _, known := f.window(now.Add(time.Second)); len(actions) != 0 || known && jump < 0 {
			t.Errorf("jump %s: %v, a window %t; want nothing", jump, actions, known)
		}
	}
}
