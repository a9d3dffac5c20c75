package local

import (
	"context"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

type machine struct {
	host inventory.Device   // its memory
	gpus []inventory.Device // as at the start
}

// room returns the most memory that one instance may have.
func (m *machine) room() *api.Memory {
	most := &api.Memory{Host: m.host.Capacity, Devices: len(m.gpus)}
	for _, gpu := range m.gpus {
		most.PerDevice = max(most.PerDevice, gpu.Capacity)
	}
	return most
}

// watchGPUs polls which GPUs exist, and the memory that others use. It does nothing if there were none at the start.
func (s *server) watchGPUs(ctx context.Context) error {
	if len(s.gpus) == 0 {
		return nil
	}
	w := gpuWatch{s: s, known: s.gpus, there: ids(s.gpus)}
	return every(ctx, s.cfg.GPUInterval, func() { w.look(ctx) })
}

type gpuWatch struct {
	s *server
	// known are all GPUs ever seen, in the order of their appearance; there, those that exist now.
	known []inventory.Device
	there []api.DeviceID
	// trouble is the last poll's error, logged once.
	trouble string
}

func (w *gpuWatch) look(ctx context.Context) {
	seen, err := inventory.Config{NvidiaSMI: w.s.cfg.NvidiaSMI}.Poll(ctx)
	if err != nil {
		w.tell(ctx, err)
		return
	}
	w.follow(seen)
	if len(w.s.cfg.DCGM) > 0 {
		if seen, err = (inventory.DCGM{URLs: w.s.cfg.DCGM}).Poll(ctx); err != nil {
			w.tell(ctx, err)
		}
	}
	w.s.autoscaler.ObserveUsage(seen)
	if err == nil {
		w.trouble = ""
	}
}

func (w *gpuWatch) tell(ctx context.Context, err error) {
	if ctx.Err() == nil && err.Error() != w.trouble {
		w.trouble = err.Error()
		w.s.cfg.Logger.Warn("the GPUs can't be looked at: what was seen of them last stays", "error", err)
	}
}

func (w *gpuWatch) follow(seen []inventory.Usage) {
	now := make([]api.DeviceID, len(seen))
	for k, u := range seen {
		now[k] = u.ID
		if !slices.ContainsFunc(w.known, func(d inventory.Device) bool { return d.ID == u.ID }) {
			w.known = append(w.known, u.NewDevice())
		}
	}
	devices := []inventory.Device{w.s.host}
	for _, d := range w.known {
		if slices.Contains(now, d.ID) {
			devices = append(devices, d)
		}
	}
	there := ids(devices[1:])
	if slices.Equal(there, w.there) {
		return
	}
	w.there = there
	w.s.cfg.Logger.Warn("the machine's GPUs have changed", "gpus", there)
	w.s.autoscaler.SetDevices(devices)
}

func ids(devices []inventory.Device) []api.DeviceID {
	out := make([]api.DeviceID, len(devices))
	for k, d := range devices {
		out[k] = d.ID
	}
	return out
}
