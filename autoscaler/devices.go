package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// othersStep is the smallest change of others' use that counts.
const othersStep = 128 * api.MiB

// ObserveUsage takes in the measured memory use of devices. What no instance accounts for is used by others
// ([inventory.Device].Others) and never allocated. Devices missing in seen keep their value.
func (a *Autoscaler) ObserveUsage(seen []inventory.Usage) {
	seen = slices.Clone(seen)
	a.put(&usageSeen{Seen: seen})
}

// SetRooms replaces what pods may still request on each node, and the pods of others that fit on no node. It must be
// current while any pod fits on no node.
func (a *Autoscaler) SetRooms(rooms []inventory.Room, unmanaged []inventory.UnmanagedPod) {
	a.put(&roomsSet{Rooms: rooms, Unmanaged: unmanaged})
}

// SetElastic sets whether nodes may be added: then an instance that fits on no node is started all the same.
func (a *Autoscaler) SetElastic(on bool) {
	a.put(&elasticSet{On: on})
}

func (a *loop) notice(seen []inventory.Usage) {
	used := make(map[api.DeviceID]api.Bytes, len(seen))
	for _, u := range seen {
		used[u.ID] = max(0, u.Used)
	}
	changed := false
	devices := slices.Clone(a.topology.Devices())
	for k, line := range a.account() {
		n, known := used[line.ID]
		if !known || devices[k].IsHost() {
			continue
		}
		held := line.Awake + line.Rising + line.Asleep + line.Leaving
		held += held / 10 // contexts and fragmentation: real use differs from reports
		others := devices[k].Unaccounted(n, held) / othersStep * othersStep
		if d := max(others-line.Others, line.Others-others); d < othersStep || d == othersStep && others > 0 {
			continue
		}
		a.log.Info("others use memory of a GPU", "device", line.ID, "used", others.String(), "before", line.Others.String(), "of", line.Capacity.String())
		devices[k].Others = others
		if a.others == nil {
			a.others = make(map[api.DeviceID]api.Bytes)
		}
		a.others[line.ID] = others
		changed = true
	}
	if changed {
		a.setDevices(devices)
	}
}

// forgive forgets failed starts on GPUs of nodes that gained or lost devices. A renamed one is no change.
func (a *loop) forgive(devices []inventory.Device) {
	of := func(list []inventory.Device, name func(inventory.Device) api.DeviceID) map[string][]api.DeviceID {
		nodes := make(map[string][]api.DeviceID)
		for _, d := range list {
			nodes[d.Node] = append(nodes[d.Node], name(d))
		}
		return nodes
	}
	old := of(a.topology.Devices(), func(d inventory.Device) api.DeviceID { return d.ID })
	now := of(devices, func(d inventory.Device) api.DeviceID { return cmp.Or(d.Was, d.ID) })
	changed := make(map[api.DeviceID]bool)
	for node, ids := range old {
		if !slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(now[node]))) {
			for _, id := range ids {
				changed[id] = true
			}
		}
	}
	for _, f := range a.functions {
		if f.Failures > 0 && !f.Hopeless && slices.ContainsFunc(f.FailedOn, func(id api.DeviceID) bool { return changed[id] }) {
			f.Failures, f.RetryAt, f.FailedOn = 0, time.Time{}, nil
		}
	}
}

// markLost marks instances whose GPU is gone although its node is not.
func (a *loop) markLost(devices []inventory.Device, now map[api.DeviceID]api.DeviceID) {
	there, nodes := make(map[api.DeviceID]bool), make(map[string]bool)
	for _, d := range devices {
		there[d.ID] = true
		nodes[d.Node] = nodes[d.Node] || d.IsHost()
	}
	lost := make(map[api.DeviceID]string)
	for _, d := range a.topology.Devices() {
		if _, renamed := now[d.ID]; !there[d.ID] && !renamed && !d.IsHost() && nodes[d.Node] {
			lost[d.ID] = d.Name
			delete(a.others, d.ID)
			a.log.Error("a GPU is gone", "device", d.ID, "name", d.Name, "node", d.Node)
		}
	}
	if len(lost) == 0 {
		return
	}
	for _, f := range a.order {
		for _, i := range f.Instances {
			for _, id := range i.Status.Devices {
				if name, gone := lost[id]; gone && i.Lost == "" {
					i.Lost = fmt.Sprintf("its GPU %s (%s) is no longer there", id, name)
				}
			}
		}
	}
}
