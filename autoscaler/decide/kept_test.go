package decide

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestKept has two sleepers that would be awake at the same time. The one that has kept the conversation is woken,
// whichever has a grant, unless memory must be freed for it or its sleep is deeper.
func TestKept(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prefers api.InstanceID
		each    api.Bytes // of a GPU of 80 GiB
		level   api.Level // of the second
		want    api.InstanceID
	}{
		{"none, and the activator wakes", "", 30 * api.GiB, api.Level1, ""},
		{"the second", "f-2", 30 * api.GiB, api.Level1, "f-2"},
		{"the first, which the activator wakes", "f-1", 30 * api.GiB, api.Level1, ""},
		{"the second, without room beside what is granted", "f-2", 60 * api.GiB, api.Level1, "f-1"},
		{"the second, which sleeps deeper", "f-2", 30 * api.GiB, api.Level2, "f-1"},
		{"one that is gone", "f-9", 30 * api.GiB, api.Level1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := dawn.Add(time.Minute)
			f := job("f", 0)
			f.Need.PerDevice, f.Spec.Memory.PerDevice = tc.each, tc.each
			f.Spec.MaxScale, f.Waiting, f.WaitingSince, f.LastRequest, f.Prefers = 2, 1, now, now, tc.prefers
			granted, other := one(&f, "f-1", api.Asleep, dawn), one(&f, "f-2", api.Asleep, dawn)
			granted.Grant = api.Grant{Instance: "f-1", Function: f.Spec.Name, Epoch: 1, Expires: now.Add(time.Hour)}
			other.Status.Level, other.From = tc.level, tc.level
			actions, _ := planned(now, []Function{f}, []Instance{granted, other})
			var woken api.InstanceID
			for _, a := range actions {
				if a.Kind == Wake {
					woken += a.Instance
				}
			}
			if woken != tc.want {
				t.Errorf("woken is %q by %v, want %q", woken, actions, tc.want)
			}
		})
	}
}

// TestBound checks requests that may not go to each instance: only an instance that they may go to is woken, and none
// is started.
func TestBound(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prefers api.InstanceID
		bound   bool
		want    string
	}{
		{"any", "", false, "wake f-1"},
		{"the second, which sleeps deeper", "f-2", true, "wake f-2"},
		{"the first", "f-1", true, "wake f-1"},
		{"one that is gone", "f-9", true, ""},
		{"none", "", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := dawn.Add(time.Minute)
			f := job("f", 0)
			f.Need.PerDevice, f.Spec.Memory.PerDevice = 30*api.GiB, 30*api.GiB
			f.Spec.MaxScale, f.Waiting, f.WaitingSince, f.LastRequest, f.Prefers, f.Bound = 3, 1, now, now, tc.prefers, tc.bound
			first, second := one(&f, "f-1", api.Asleep, dawn), one(&f, "f-2", api.Asleep, dawn)
			second.Status.Level, second.From = api.Level2, api.Level2
			actions, _ := planned(now, []Function{f}, []Instance{first, second})
			got := ""
			for _, a := range actions {
				if a.Kind == Wake || a.Kind == Start {
					got += string(a.Kind) + " " + string(a.Instance)
				}
			}
			if got != tc.want {
				t.Errorf("got %q by %v, want %q", got, actions, tc.want)
			}
		})
	}
}
