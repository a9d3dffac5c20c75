package admin_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// TestWire checks that the wire format, which clients of any version read, stays the same byte for byte.
func TestWire(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, tc := range []struct {
		value any
		want  string
	}{
		{admin.Function{
			Function:  api.Function{Name: "default/tiny", Model: "tiny"},
			Instances: []api.InstanceStatus{{Instance: "i", Function: "default/tiny", State: api.Asleep, Level: 1}},
			Waiting:   1, Running: 2, Desired: 3, Scale: &admin.Override{Replicas: 4, Until: at, By: "ops"}, LastRequest: at, Need: api.Memory{Host: 5},
			Learned: admin.Learned{Load: 6, Wake: [4]time.Duration{0, 7, 8}, Sleep: 9, Awake: api.Memory{Host: 10}, Asleep: [4]api.Memory{{}, {Host: 11}, {Host: 12}},
				PromptRate: 13, TokenRate: 14.5, Starts: 15, Wakes: 16, Sleeps: 17, Nodes: []string{"n"}},
			Granted: []api.InstanceID{"i"}, Failures: 18, LastError: "e", RetryAt: at, Waits: "w", Foreseen: "o",
		}, `{"function":{"name":"default/tiny","model":"tiny","runtime":{"kind":""},"minScale":0,"maxScale":0,"concurrency":0,"memory":{"host":0},"sleepAfter":0,"sleepLevel":0,"goneAfter":0,"hold":{"capacity":0,"maxBytes":0,"timeout":0},"startTimeout":0,"wakeTimeout":0,"requestTimeout":0,"priority":0},"instances":[{"instance":"i","function":"default/tiny","state":"asleep","level":1,"epoch":0,"seq":0,"since":"0001-01-01T00:00:00Z","endpoint":"","running":0,"concurrency":0,"memory":{"host":0},"loadTime":0,"wakeTime":0,"sleepTime":0,"restarts":0}],"waiting":1,"running":2,"desired":3,"scale":{"replicas":4,"until":"2030-01-02T03:04:05.000000006Z","by":"ops"},"lastRequest":"2030-01-02T03:04:05.000000006Z","need":{"host":5},"learned":{"load":6,"wake":[0,7,8,0],"sleep":9,"awake":{"host":10},"asleep":[{"host":0},{"host":11},{"host":12},{"host":0}],"promptRate":13,"tokenRate":14.5,"starts":15,"wakes":16,"sleeps":17,"nodes":["n"]},"granted":["i"],"failures":18,"lastError":"e","retryAt":"2030-01-02T03:04:05.000000006Z","waits":"w","foreseen":"o","activator":{"waiting":0,"oldestAge":0,"heldBytes":0,"running":0,"lastRequest":"0001-01-01T00:00:00Z","instances":null}}`},
		{admin.Function{}, `{"function":{"name":"","model":"","runtime":{"kind":""},"minScale":0,"maxScale":0,"concurrency":0,"memory":{"host":0},"sleepAfter":0,"sleepLevel":0,"goneAfter":0,"hold":{"capacity":0,"maxBytes":0,"timeout":0},"startTimeout":0,"wakeTimeout":0,"requestTimeout":0,"priority":0},"instances":null,"waiting":0,"running":0,"desired":0,"lastRequest":"0001-01-01T00:00:00Z","need":{"host":0},"learned":{"load":0,"wake":[0,0,0,0],"sleep":0,"awake":{"host":0},"asleep":[{"host":0},{"host":0},{"host":0},{"host":0}],"starts":0,"wakes":0,"sleeps":0},"activator":{"waiting":0,"oldestAge":0,"heldBytes":0,"running":0,"lastRequest":"0001-01-01T00:00:00Z","instances":null}}`},
		{admin.Device{ID: "n/host", Node: "n", Name: "host memory", Others: 2, Capacity: 3, Total: 4,
			Awake: 5, Rising: 6, Reserved: 7, Asleep: 8, Leaving: 9, Free: -10}, `{"id":"n/host","node":"n","name":"host memory","others":2,"capacity":3,"total":4,"awake":5,"rising":6,"reserved":7,"asleep":8,"leaving":9,"free":-10}`},
		{admin.Device{}, `{"id":"","name":"","capacity":0,"total":0,"awake":0,"rising":0,"reserved":0,"asleep":0,"leaving":0,"free":0}`},
	} {
		got, err := json.Marshal(tc.value)
		if err != nil || string(got) != tc.want {
			t.Errorf("got %s, %v\nwant %s", got, err, tc.want)
		}
	}
}

// TestState: the state of a function comes from the instance that accepts a request soonest, and one that drains accepts none any more.
func TestState(t *testing.T) {
	for k, want := range api.States {
		var f admin.Function
		for _, s := range append([]api.State{"of a later version"}, api.States[k:]...) {
			f.Instances = append([]api.InstanceStatus{{State: s}}, f.Instances...)
		}
		if got := f.State(); got != want {
			t.Errorf("%v: %s, want %s", f.Instances, got, want)
		}
	}
	both := admin.Function{Instances: []api.InstanceStatus{{State: api.Draining}, {State: api.Starting}}}
	if got := both.State(); got != api.Starting {
		t.Errorf("one drains while another starts: %s", got)
	}
}

// TestFailed checks the reported reason for a function without an instance, also if it can never have one. A function
// that serves has not failed.
func TestFailed(t *testing.T) {
	some := func(state api.State) []api.InstanceStatus { return []api.InstanceStatus{{State: state}} }
	for name, tc := range map[string]struct {
		f    admin.Function
		want string
	}{
		"nothing happened":   {admin.Function{}, ""},
		"a start failed":     {admin.Function{LastError: "no weights"}, "no weights"},
		"refused":            {admin.Function{Activator: api.Activity{Failed: "no capacity"}}, "no capacity"},
		"it never fits":      {admin.Function{Impossible: "needs 2 GPUs", LastError: "no weights"}, "needs 2 GPUs"},
		"it is ill":          {admin.Function{LastError: "no weights", Instances: some(api.Unhealthy)}, "no weights"},
		"it is tried again":  {admin.Function{LastError: "no weights", Instances: some(api.Starting)}, ""},
		"it serves":          {admin.Function{LastError: "no weights", Instances: some(api.Awake)}, ""},
		"it serves, though…": {admin.Function{Impossible: "needs 2 GPUs", Instances: some(api.Awake)}, ""},
	} {
		if got := tc.f.Failed(); got != tc.want || admin.Summarize(tc.f).Failed != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
