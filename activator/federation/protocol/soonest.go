package protocol

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Soonest returns the state of the instance that can accept a request soonest, or gone, and the time until it is awake; 0:
// it is, or the time is unknown.
func Soonest(list []api.InstanceStatus, now time.Time) (state api.State, expected time.Duration) {
	order := []api.State{api.Awake, api.Starting, api.Asleep, api.Draining}
	state, best := api.Gone, len(order)
	for _, st := range list {
		at := slices.Index(order, st.State)
		if at < 0 || at >= best {
			continue
		}
		best = at
		switch state, expected = st.State, 0; state {
		case api.Starting:
			expected = max(st.LoadTime-now.Sub(st.Since), 0)
		case api.Asleep, api.Draining: // once asleep it can be woken
			expected = st.WakeTime
		default:
		}
	}
	return state, expected
}
