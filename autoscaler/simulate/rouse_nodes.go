package simulate

import (
	"fmt"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Each machine that replaces another has a new name. A single node has none.
func (p *rouse) nodeName(n int) string {
	switch of := p.w.nodes[n].number; {
	case p.w.cfg.Nodes == 1:
		return ""
	case of > 0:
		return fmt.Sprintf("node-%03d.%d", n, of)
	}
	return fmt.Sprintf("node-%03d", n)
}

func (p *rouse) deviceID(d int) api.DeviceID {
	if of := p.w.nodes[p.w.devices[d].node].number; of > 0 {
		return api.DeviceID(fmt.Sprintf("GPU-%04d.%d", d, of))
	}
	return api.DeviceID(fmt.Sprintf("GPU-%04d", d))
}

func (p *rouse) findDevices() {
	w := p.w
	var devices []inventory.Device
	clear(p.index)
	for n := range w.nodes {
		if !w.nodes[n].gone {
			name := p.nodeName(n)
			devices = append(devices, inventory.Device{ID: inventory.HostOf(name), Node: name, Name: "host memory", Capacity: w.cfg.HostMemory, Total: w.cfg.HostMemory})
		}
	}
	for d := range w.devices {
		if dv := &w.devices[d]; !dv.gone {
			id := p.deviceID(d)
			p.index[id] = d
			devices = append(devices, inventory.Device{ID: id, Node: p.nodeName(dv.node), Name: "GPU", Capacity: w.cfg.DeviceMemory, Total: w.cfg.DeviceMemory})
		}
	}
	p.snapshot.Topology = decide.NewTopology(devices)
}

func (p *rouse) left(_ int, lost []*unit) {
	for _, u := range lost {
		for _, known := range p.of[u.f.number].Instances {
			if i := p.instances[known.Status.Instance]; i.u == u {
				p.drop(i)
				break
			}
		}
	}
	p.joined(0)
}

func (p *rouse) joined(int) {
	p.findDevices()
	p.tell()
}
