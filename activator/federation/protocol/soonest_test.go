package protocol

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestSoonest: an instance on its way to sleep is not gone, and comes after those that are closer to serving.
func TestSoonest(t *testing.T) {
	draining, asleep := api.InstanceStatus{State: api.Draining, WakeTime: 3 * time.Second}, api.InstanceStatus{State: api.Asleep, WakeTime: time.Second}
	for _, tt := range []struct {
		list     []api.InstanceStatus
		state    api.State
		expected time.Duration
	}{
		{nil, api.Gone, 0},
		{[]api.InstanceStatus{{State: api.Unhealthy}}, api.Gone, 0},
		{[]api.InstanceStatus{draining}, api.Draining, 3 * time.Second},
		{[]api.InstanceStatus{draining, asleep}, api.Asleep, time.Second},
		{[]api.InstanceStatus{asleep, draining, {State: api.Awake}}, api.Awake, 0},
	} {
		if state, expected := Soonest(tt.list, time.Now()); state != tt.state || expected != tt.expected {
			t.Errorf("%+v: %s in %s, want %s in %s", tt.list, state, expected, tt.state, tt.expected)
		}
	}
}
