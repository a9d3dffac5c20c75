package autoscaler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// complete puts a status, of which the last one was old, into bounds and fills in what its instance did not measure.
// A process that sleeps keeps some of each GPU that it has a context on. How much is, in this order,
//
//  1. what the instance has measured
//  2. what its runtime has said of the whole GPU as it fell asleep, less what others hold of it
//  3. what was known of this sleep before, or of one of its function last
//  4. as much as awake, while the instance measures it
//  5. assumed ([Config.AssumedResidue])
//
// More than the GPU has is no measurement.
func (a *Autoscaler) complete(f *function, s *api.InstanceStatus, old api.InstanceStatus) {
	m := &s.Memory
	m.Host, s.Level = max(0, m.Host), min(max(s.Level, api.LevelAwake), api.Level2)
	all := a.smallest(s.Devices)
	if m.PerDevice < 0 || m.PerDevice > all {
		m.Devices, m.PerDevice = 0, 0
	}
	declared := f.Spec.Memory.PerDevice
	if s.State != api.Asleep {
		// Contexts and fragmentation: what an instance takes is not what is declared to the byte.
		if m.PerDevice > declared && m.PerDevice <= declared+declared/10 {
			m.PerDevice = declared
		}
		return
	}
	if len(s.Devices) == 0 || s.PID == 0 || m.PerDevice > 0 { // 1
		return
	}
	m.Devices = len(s.Devices)
	before, past := old.Memory, f.Past.Residue(s.Level)
	known := old.State == api.Asleep && old.Level == s.Level && !before.Assumed
	said := a.rest(*s, old)
	switch {
	case said > 0: // 2
		m.PerDevice = said
	case known && before.PerDevice > 0: // 3
		m.PerDevice = before.PerDevice
	case past.PerDevice > 0 && !past.Assumed:
		m.PerDevice = past.PerDevice
	case s.Measuring: // 4
		m.PerDevice, m.Assumed = min(cmp.Or(declared, all), all), true
	default: // 5
		m.PerDevice, m.Assumed = a.cfg.AssumedResidue, true
	}
}

// beingMeasured says whether what a sleeper keeps of its GPUs is not known of any of its function, and about to be.
func beingMeasured(s api.InstanceStatus) bool {
	return s.State == api.Asleep && s.Measuring && s.Memory.Assumed
}

// smallest is the whole of that of the devices which has least.
func (a *Autoscaler) smallest(devices []api.DeviceID) api.Bytes {
	least := api.MaxDeviceMemory
	for _, d := range a.world.Devices() {
		if slices.Contains(devices, d.ID) {
			least = min(least, cmp.Or(d.Total, d.Capacity))
		}
	}
	return least
}

// rest is what a sleeper holds of its GPUs by what its runtime has just said of the fullest; 0: that is not known.
// Only while all others there sleep it is known what they hold: it is the rest.
func (a *Autoscaler) rest(s, old api.InstanceStatus) api.Bytes {
	if s.DeviceUse <= 0 || old.State == api.Asleep && s.DeviceUse == old.DeviceUse || s.DeviceUse > a.smallest(s.Devices) {
		return 0
	}
	rest := s.DeviceUse
	for _, d := range a.world.Devices() {
		if !slices.Contains(s.Devices, d.ID) {
			continue
		}
		held := d.Others
		for id, i := range a.instances {
			if id == s.Instance || !slices.Contains(i.Status.Devices, d.ID) {
				continue
			}
			if i.Status.State != api.Asleep || i.BeingWoken() {
				return 0
			}
			held += i.Status.Memory.PerDevice
		}
		rest = min(rest, d.Unaccounted(s.DeviceUse, held))
	}
	return rest
}

// doubt ends, where a start or wake of i has failed for want of GPU memory, the sleepers beside it of which it is only
// assumed what they keep: room was made by that assumption, and it is not to fail by it again. Memory that is kept for a
// sleeper to be awake was no part of that room.
func (a *Autoscaler) doubt(i *instance) {
	for _, s := range a.instances {
		if s == i || s.Status.State != api.Asleep || !s.Status.Memory.Assumed || s.f.Spec.DualPods || s.Grant.Instance != "" ||
			!slices.ContainsFunc(s.Status.Devices, func(d api.DeviceID) bool { return slices.Contains(i.Status.Devices, d) }) {
			continue
		}
		s.Doubt = fmt.Sprintf("%s found too little GPU memory beside it, and what it keeps asleep is assumed (%s), not measured", i.f.Spec.Name, s.Status.Memory.PerDevice)
		a.dirty.add(s.f.Spec.Name)
	}
}
