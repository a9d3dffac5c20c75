package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Line is the account of one device: who has what of it.
type Line struct {
	inventory.Device
	// Awake is used by awake and unhealthy instances; Rising is kept for those that
	// start or wake, Reserved for sleepers with a standing grant.
	Awake    api.Bytes `json:"awake"`
	Rising   api.Bytes `json:"rising"`
	Reserved api.Bytes `json:"reserved"`
	// Asleep is what sleepers hold; Leaving is held by those on their way down.
	Asleep  api.Bytes `json:"asleep"`
	Leaving api.Bytes `json:"leaving"`
	// Free is what is left, below zero where instances use more than was promised.
	Free api.Bytes `json:"free"`
}

// Account adds up who has what, as a plan sees it at now. s must be in the
// order of [Snapshot.Sort].
func Account(s Snapshot, now time.Time) []Line {
	if len(s.Devices) == 0 {
		return nil
	}
	p := newPlan(&s, now)
	lines := make([]Line, len(s.Devices))
	for d := range lines {
		l := &lines[d]
		l.Device, l.Free = s.Devices[d], p.free[d]
		for k := range p.is {
			i := &p.is[k]
			switch i.phase {
			case phaseAwake, phaseIll:
				l.Awake += i.held[d]
			case phaseRising:
				l.Rising += i.held[d]
			case phaseFalling, phaseLeaving:
				l.Leaving += i.held[d]
			case phaseAsleep:
				if i.reserved(now) {
					l.Reserved += i.held[d]
				} else {
					l.Asleep += i.held[d]
				}
			}
		}
	}
	return lines
}
