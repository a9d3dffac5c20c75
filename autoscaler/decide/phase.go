package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// phase is the state of an instance, including the call under way.
type phase int

const (
	phaseAsleep phase = iota
	phaseRising       // starting or waking
	phaseAwake
	phaseFalling // draining or going to sleep, or deeper
	phaseLeaving // being stopped
	phaseIll     // unhealthy
)

func phaseOf(i *Instance) phase {
	switch i.Doing {
	case DoingStop:
		return phaseLeaving
	case DoingSleep:
		return phaseFalling
	case DoingStart, DoingWake:
		return phaseRising
	}
	if i.Outdated {
		return phaseLeaving
	}
	switch i.Status.State {
	case api.Awake:
		return phaseAwake
	case api.Draining:
		if i.Status.Taken { // it does not come back
			return phaseLeaving
		}
		return phaseFalling
	case api.Unhealthy:
		return phaseIll
	case api.Asleep:
		if i.Waking {
			return phaseRising
		}
		return phaseAsleep
	case api.Gone:
		return phaseLeaving
	}
	return phaseRising
}

// reserved reports whether memory is kept for i to be awake although it is not. An expired grant still reserves: its
// holder may have another clock, and a wake under it may be on its way.
func (i *Instance) reserved() bool {
	return i.Doing == DoingGrant || i.Doing == DoingRevoke || i.Grant.Instance != ""
}

// settling reports whether i sleeps and is expected to report less memory than it holds.
func (i *instance) settling(now time.Time) bool {
	return i.phase == phaseAsleep && i.Doing == Nothing && now.Before(i.Settles) && !i.reserved()
}
