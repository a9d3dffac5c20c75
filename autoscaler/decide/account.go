package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Account returns how the memory of each device is used, as a plan sees it at now. It is in the order of the topology.
func Account(s Snapshot, now time.Time) []admin.Device {
	if len(s.Topology.devs) == 0 {
		return nil
	}
	ledger := newLedger(s.Topology, s.Functions, now)
	lines := make([]admin.Device, len(ledger.devs))
	for d := range lines {
		l, dev := &lines[d], &ledger.devs[d]
		*l = admin.Device{ID: dev.ID, Node: dev.Node, Name: dev.Name, Others: dev.Others, Capacity: dev.Capacity, Total: dev.Total,
			Free: ledger.free[d]}
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
