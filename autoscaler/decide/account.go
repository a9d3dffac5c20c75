package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Line is the account of one device: how its memory is used.
type Line struct {
	inventory.Device
	// Awake is used by awake and unhealthy instances. Rising is reserved for instances that start or wake, Reserved for
	// sleepers with a standing grant.
	Awake    api.Bytes
	Rising   api.Bytes
	Reserved api.Bytes
	// Asleep is held by sleepers, Leaving by instances that go to sleep or end.
	Asleep  api.Bytes
	Leaving api.Bytes
	// Free is the rest. It is negative if instances and others use more than was planned.
	Free api.Bytes
}

// Status returns the account in the form of the admin API.
func (l Line) Status() admin.Device {
	return admin.Device{ID: l.ID, Node: l.Node, Name: l.Name, Cost: l.Cost, Others: l.Others, Capacity: l.Capacity, Total: l.Total,
		Awake: l.Awake, Rising: l.Rising, Reserved: l.Reserved, Asleep: l.Asleep, Leaving: l.Leaving, Free: l.Free}
}

// Account returns how the memory of each device is used, as a plan sees it at now.
func Account(s Snapshot, now time.Time) []Line {
	if len(s.Topology.devs) == 0 {
		return nil
	}
	ledger := newLedger(s.Topology, s.Functions, now)
	lines := make([]Line, len(ledger.devs))
	for d := range lines {
		l := &lines[d]
		l.Device, l.Free = ledger.devs[d], ledger.free[d]
		for _, i := range ledger.on[d] {
			n := i.heldOf(int32(d))
			switch i.phase {
			case phaseAwake, phaseUnhealthy:
				l.Awake += n
			case phaseRising:
				l.Rising += n
			case phaseFalling, phaseLeaving:
				l.Leaving += n
			case phaseAsleep:
				if i.reserved() {
					l.Reserved += n
				} else {
					l.Asleep += n
				}
			}
		}
	}
	return lines
}

// heldOf returns the memory that i takes of one device.
func (i *instance) heldOf(device int32) api.Bytes {
	for k, d := range i.at {
		if d == device {
			return i.held[k]
		}
	}
	return 0
}
