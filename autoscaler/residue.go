package autoscaler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// complete corrects a status and fills in what its instance did not measure; old is the previous status. A sleeping
// process keeps some memory of each GPU that it has a context on. The amount is, in this order:
//
//  1. measured by the instance
//  2. the GPU's use that its runtime reported as it fell asleep, less what others hold
//  3. known from this sleep, or from the last sleep of the function
//  4. as much as awake, while the instance measures it
//  5. assumed ([assumedResidue])
//
// A value above the GPU's size is ignored.
func (a *loop) complete(f *function, s *api.InstanceStatus, old api.InstanceStatus) {
	m := &s.Memory
	m.Host, s.Level = max(0, m.Host), min(max(s.Level, api.LevelAwake), api.Suspended)
	all := a.smallest(s.Devices)
	if m.PerDevice < 0 || m.PerDevice > all {
		m.Devices, m.PerDevice = 0, 0
	}
	declared := f.Spec.Memory.PerDevice
	if s.State != api.Asleep {
		// Contexts and fragmentation: real use differs from the declared amount.
		if m.PerDevice > declared && m.PerDevice <= declared+declared/10 {
			m.PerDevice = declared
		}
		return
	}
	if s.Level == api.Suspended {
		m.Devices, m.PerDevice = 0, 0
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
		m.PerDevice, m.Assumed = assumedResidue, true
	}
}

// beingMeasured reports whether a sleeper measures the first known residue of its function.
func beingMeasured(s api.InstanceStatus) bool {
	return s.State == api.Asleep && s.Measuring && s.Memory.Assumed
}

// smallest returns the total memory of the smallest of devices.
func (a *loop) smallest(devices []api.DeviceID) api.Bytes {
	least := api.MaxDeviceMemory
	for _, d := range a.topology.Devices() {
		if slices.Contains(devices, d.ID) {
			least = min(least, cmp.Or(d.Total, d.Capacity))
		}
	}
	return least
}

// rest returns what a sleeper holds of its GPUs, computed from the fullest GPU's use that its runtime has just reported;
// 0: unknown. It is known only while all other instances there sleep: theirs is subtracted.
func (a *loop) rest(s, old api.InstanceStatus) api.Bytes {
	if s.DeviceUse <= 0 || old.State == api.Asleep && s.DeviceUse == old.DeviceUse || s.DeviceUse > a.smallest(s.Devices) {
		return 0
	}
	rest := s.DeviceUse
	for _, d := range a.topology.Devices() {
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

// doubt is called when a start or wake of i failed for lack of GPU memory. It ends the sleepers beside i whose residue
// is only assumed, so that the same assumption does not make another start fail. Sleepers with a grant stay: memory for
// them to be awake is reserved anyway.
func (a *loop) doubt(i *instance) {
	for _, s := range a.instances {
		if s == i || s.Status.State != api.Asleep || !s.Status.Memory.Assumed || s.f.Spec.DualPods || s.Grant.Instance != "" ||
			!slices.ContainsFunc(s.Status.Devices, func(d api.DeviceID) bool { return slices.Contains(i.Status.Devices, d) }) {
			continue
		}
		s.Doubt = fmt.Sprintf("%s found too little GPU memory beside it, and what it keeps asleep is assumed (%s), not measured", i.f.Spec.Name, s.Status.Memory.PerDevice)
	}
}
